import { createHash } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { Response } from 'express';
import type { SignInView } from '../../core/identity/sign-in/sign-in-view.ts';
import { addHeaders, sendText } from '../http/request.ts';

/** Markup that is inserted unescaped: created by `html`, or a constant of ours, never from a value. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** A value in a template. Text is escaped; undefined and false are omitted. */
export type Content = string | number | Html | readonly Content[] | undefined | false;

/**
 * Creates markup. Every value is escaped for text and for quoted attributes, unless it is markup from another such template.
 * @example
 * html`<p title="${title}">${text}</p>`
 */
export function html(strings: TemplateStringsArray, ...values: readonly Content[]): Html {
  return new Html(strings.reduce((text, part, at) => `${text}${render(values[at - 1])}${part}`));
}

function render(content: Content): string {
  if (content instanceof Html) return content.text;
  if (content === undefined || content === false) return '';
  if (typeof content === 'object') return content.map(render).join('');
  return String(content).replaceAll(/[&<>"'`]/g, character => `&#${character.charCodeAt(0)};`);
}

/**
 * Shows a name chosen by others (a user id, an account, an app) on a page with a decision. Its writing direction is isolated.
 * Characters that are invisible or affect others become U+FFFD.
 */
export const named = (name: string): Html => html`<bdi>${visible(name)}</bdi>`;

/** Shows such a name without markup: in titles and labels. */
export const visible = (name: string): string => name.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '\u{fffd}');

/** A tenant without a name is still an app to the user. */
export const appName = ({ app }: { app: string | undefined }, at?: 'start'): Html =>
  app === undefined ? html`${at === 'start' ? 'The app' : 'the app'}` : named(app);

/** Lists app and user, or the tenant, then the provider or server, and more of it. */
export const factsOf = (view: SignInView, more?: Html): Html =>
  html`<dl>
    ${
      view.user === undefined
        ? html`<dt>Tenant</dt>
            <dd>${named(view.tenant)}</dd>`
        : html`${
              view.app !== undefined &&
              html`<dt>App</dt>
                <dd>${named(view.app)}</dd>`
            }
            <dt>You, in the app</dt>
            <dd>${named(view.user)}</dd>`
    }
    <dt>${view.serverId === undefined ? 'Provider' : 'Server'}</dt>
    <dd>${named(view.provider)}</dd>
    ${more}
  </dl>`;

/** Begins a sentence about what is asked of a user. */
export const requestOf = (view: SignInView): Html =>
  view.isOfPage
    ? html`You give ${appName(view)} access to`
    : html`${appName(view, 'start')} asks for access to`;

/** Says where a sign-in should have begun. */
export function placeOf({ user, isOfPage }: SignInView): string {
  if (user === undefined) return 'as the operator of this installation';
  return isOfPage ? 'on the page of your connections' : 'in the app';
}

/** Leads to the page of connections. */
export const pageButton = (url: string, text = 'Back to your connections'): Html =>
  html`<a class="button second" href="${url}">${text}</a>`;

const DATE = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'short', timeZone: 'UTC' });
const HOUR = new Intl.DateTimeFormat('en-GB', { timeStyle: 'short', timeZone: 'UTC' });

/** Shows a time with its date. */
export const time = (at: Date | string): Html => timeElement(DATE, new Date(at));

export const timeOfDay = (at: Date): Html => timeElement(HOUR, at);

const timeElement = (format: Intl.DateTimeFormat, at: Date): Html =>
  html`<time datetime="${at.toISOString()}">${format.format(at)} UTC</time>`;

export interface Page {
  /** Default 200. */
  readonly status?: number;
  /** Also the heading, unless `heading` is given. */
  readonly title: string;
  readonly heading?: Html;
  readonly body: Html;
  /** Additional form targets as CSP sources: browsers also apply this to redirects after a form. */
  readonly formTargets?: readonly string[];
  /** The address of an icon of ours. Default: none. */
  readonly icon?: string;
  /** The address of a script of ours that makes the page more convenient. The page works without it. */
  readonly script?: string;
  /** true: the page shows code, and is wider. */
  readonly isWide?: boolean;
}

/** Responds with a page that needs no script, and loads at most an icon and a script of ours. */
export function sendPage(response: ServerResponse, page: Page): void {
  addHeaders(response, headersOf(page));
  sendText(response, page.status ?? 200, 'text/html', documentOf(page).text);
}

/** Redirects to another page, which is always fetched with GET (RFC 9110 §15.4.4). */
export function seeOther(response: Response, url: string): void {
  response.status(303).set(headersOf({})).location(url).end();
}

/** Links to these pages are secrets, so neither caches nor referrers may keep them. */
const headersOf = ({ formTargets = [], icon, script }: Pick<Page, 'formTargets' | 'icon' | 'script'>) => ({
  'Content-Security-Policy': [
    "default-src 'none'",
    ...(script === undefined ? [] : ["script-src 'self'"]),
    `style-src '${STYLE_HASH}'`,
    ...(icon === undefined ? [] : ["img-src 'self'"]),
    `form-action ${["'self'", ...formTargets.filter(isSource)].join(' ')}`,
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'Referrer-Policy': 'no-referrer',
  'Cache-Control': 'no-store',
  'X-Content-Type-Options': 'nosniff',
  // An app that opened the sign-in as a pop-up can detect when it closes.
  'Cross-Origin-Opener-Policy': 'unsafe-none',
});

/** Returns whether a scheme or an origin can be in the policy. Hosts may contain `;` and `,`, which would end it. */
const isSource = (target: string): boolean => /^[\w:/.[\]-]+$/.test(target);

const documentOf = ({ title, heading, body, icon, script, isWide }: Page): Html =>
  html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="robots" content="noindex" />
        <title>${title}</title>
        ${icon !== undefined && html`<link rel="icon" href="${icon}" type="image/svg+xml" />`}
        ${STYLE_ELEMENT} ${script !== undefined && html`<script type="module" src="${script}"></script>`}
      </head>
      <body>
        <main class="${isWide && 'wide'}">
          <h1>${heading ?? title}</h1>
          ${body}
        </main>
      </body>
    </html> `;

const STYLE = `:root{color-scheme:light dark;--page:#f4f5f7;--card:#fff;--text:#1b1f24;--quiet:#4d5661;--line:#d0d5db;--accent:#1a56c4;--on-accent:#fff;--danger:#b3261e;--note:#e8f0fd}
@media (prefers-color-scheme:dark){:root{--page:#111418;--card:#1a1e24;--text:#e8eaed;--quiet:#aab2bd;--line:#3a424d;--accent:#8ab4f8;--on-accent:#0b1a33;--danger:#f5a39c;--note:#1d2a3f}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
main{max-width:36rem;margin:0 auto;padding:1.5rem 1.25rem 2rem;background:var(--card)}
@media (min-width:38rem){main{margin:3rem auto;padding:2rem 2.25rem;border:1px solid var(--line);border-radius:.75rem}}
main.wide{max-width:56rem}
h1{margin:0 0 1rem;font-size:1.5rem;line-height:1.25}
h2{margin:1.75rem 0 .5rem;font-size:1.05rem;line-height:1.35}
p{margin:0 0 1rem}
ul{margin:0 0 1rem;padding-left:1.25rem}
ul.plain{padding:0;list-style:none}
code,small{color:var(--quiet);font-size:.875rem}
code{font-family:ui-monospace,monospace}
dl{display:grid;grid-template-columns:minmax(6rem,max-content) 1fr;gap:.25rem 1rem;margin:0 0 1rem}
dt{color:var(--quiet)}
dd{margin:0}
dd ul{margin:0}
.note{padding:.75rem 1rem;border-left:4px solid var(--accent);border-radius:.25rem;background:var(--note)}
.warn{color:var(--danger);font-weight:600}
figure{margin:0 0 1rem}
figcaption{display:flex;flex-wrap:wrap;align-items:center;justify-content:space-between;gap:.25rem 1rem;min-height:44px;margin-bottom:.5rem}
pre{margin:0;padding:.75rem 1rem;border:1px solid var(--line);border-radius:.5rem;background:var(--page);white-space:pre-wrap}
pre code{color:inherit}
.fold{margin:0;border-top:1px solid var(--line);font-weight:400}
.fold summary{padding:.6rem 0;font-weight:600}
.fold+h2{padding-top:1.5rem;border-top:1px solid var(--line);margin-top:0}
.links a{display:inline-block;min-width:44px;min-height:44px;padding-top:.6rem;font-weight:600}
.entry{padding:1.25rem 0;border-top:1px solid var(--line)}
.entry h2{margin-top:0}
.state{padding:.1rem .5rem;border-radius:1rem;background:var(--note);color:var(--text);font-size:.875rem;font-weight:400}
.bad{padding:0;background:transparent;color:var(--danger);font-weight:600}
.call p{margin:0}
.call{padding:.5rem 0}
.offer{display:flex;flex-wrap:wrap;align-items:center;justify-content:space-between;gap:.5rem 1rem;padding:.5rem 0}
.offer>div{flex:1 1 12rem}
.row{display:flex;gap:.75rem;margin:.25rem 0 1rem}
.row input{margin:0}
.row button{flex:none}
.buttons{display:flex;flex-wrap:wrap;gap:.75rem;margin-top:1.5rem}
label{display:block}
label,details{margin-top:1rem;font-weight:600}
summary{min-height:44px;cursor:pointer}
form .note{margin-top:1.5rem}
input,select{width:100%;min-height:44px;margin-top:.25rem;padding:.5rem .75rem;border:1px solid var(--line);border-radius:.5rem;background:var(--page);color:inherit;font:inherit}
.help{margin:.25rem 0 0;color:var(--quiet);font-size:.875rem}
button,.button{min-height:44px;padding:.55rem 1.25rem;border:1px solid var(--accent);border-radius:.5rem;background:var(--accent);color:var(--on-accent);font:inherit;font-weight:600;text-align:center;text-decoration:none;cursor:pointer}
.button{display:inline-block}
.second{background:transparent;color:var(--accent)}
.danger{border-color:var(--danger);background:transparent;color:var(--danger)}
button:hover,.button:hover{text-decoration:underline}
a{color:var(--accent)}
:focus-visible{outline:3px solid var(--accent);outline-offset:3px}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@media (forced-colors:active){button,.button{border-color:ButtonText}}`;

const STYLE_HASH = `sha256-${createHash('sha256').update(STYLE).digest('base64')}`;
// On one line, because a formatter could add spaces that the hash does not cover.
const STYLE_ELEMENT = new Html(`<style>${STYLE}</style>`);
