import type { PageHolder } from '../../core/identity/manage.ts';
import type { SignInChoice } from '../../core/identity/sign-in/page-sign-in.ts';
import { html, named, pageButton, visible, type Html, type Page } from '../pages/page.ts';
import { isLoopback } from './client-rules.ts';

/** An MCP client that asks to act for a user. */
export interface AskingClient {
  /** Its name for itself. */
  readonly name: string;
  /** The host that publishes what it says of itself; undefined: it says so itself. */
  readonly publishedAt: string | undefined;
  /** Where the user goes with the code. */
  readonly redirectUri: string;
  /** The server that it asks for; undefined: all. */
  readonly serverName: string | undefined;
  readonly scopes: readonly string[];
}

interface Sent {
  /** The target of the forms. */
  readonly action: string;
  readonly token: string;
}

const SCOPES: Readonly<Record<string, string>> = {
  'mcp:search': 'Search for servers and their tools',
  'mcp:call': 'Call tools, also with the accounts that you have connected',
};

/** Asks a signed-in user whether the client may act for them. */
export const consentPage = (client: AskingClient, holder: PageHolder, { action, token }: Sent): Page => ({
  title: 'Connect an app',
  heading: html`Connect ${named(client.name)}?`,
  // Chromium applies this to the redirect that leads back to the app.
  formTargets: [sourceOf(client.redirectUri)],
  body: html` <p>${named(client.name)} asks to act for you. It could:</p>
    <ul>
      ${client.scopes.map(scope => html`<li>${SCOPES[scope] ?? scope}</li>`)}
    </ul>
    <dl>
      ${clientFacts(client)}
      <dt>You</dt>
      <dd>${named(holder.user)}</dd>
      <dt>At</dt>
      <dd>${holder.app === undefined ? named(holder.tenantId) : named(holder.app)}</dd>
      <dt>Servers</dt>
      <dd>${client.serverName === undefined ? 'All' : named(client.serverName)}</dd>
    </dl>
    ${warningOf(client)}
    <form method="post" action="${action}">
      <input type="hidden" name="token" value="${token}" />
      <div class="buttons">
        <button name="answer" value="allow">Allow</button>
        <button class="second" name="answer" value="deny">Do not allow</button>
      </div>
    </form>
    <form method="post" action="${action}/someone-else">
      <input type="hidden" name="token" value="${token}" />
      <p class="help">
        You can end this at any time on the page of your connections. Not ${named(holder.user)}?
        <button class="second">Sign in as somebody else</button>
      </p>
    </form>`,
});

interface SignInForms extends Sent {
  /** The beginning of links. */
  readonly link: string;
  readonly choices: readonly SignInChoice[];
  /** The link that was entered does not work. */
  readonly isLinkOver: boolean;
}

/** Asks who the user is. */
export const whoPage = (
  client: AskingClient,
  { action, token, choices, link, isLinkOver }: SignInForms,
): Page => {
  const hidden = html`<input type="hidden" name="token" value="${token}" />`;
  return {
    title: 'Connect an app',
    heading: html`Sign in to connect ${named(client.name)}`,
    formTargets: ['https:', ...choices.map(({ origin }) => origin)],
    body: html` <p>${named(client.name)} asks to act for you here. First show who you are.</p>
      <dl>${clientFacts(client)}</dl>
      ${
        choices.length > 0 &&
        html`<form method="post" action="${action}/provider">
          ${hidden}
          <div class="buttons">
            ${choices.map(
              ({ name, title }) =>
                html`<button name="provider" value="${name}">Sign in with ${visible(title)}</button>`,
            )}
          </div>
        </form>`
      }
      <form method="post" action="${action}/link">
        ${hidden}
        <label for="link">${choices.length > 0 ? 'Or enter a link' : 'Enter a link'}</label>
        <p id="link.help" class="help">
          Whoever runs this service makes one with
          <code>npx switchboard connections link YOUR-ID</code>. It begins with <code>${link}</code> and works
          once, within five minutes. The page of your connections is then open in this browser for a quarter
          of an hour.
        </p>
        ${isLinkOver && html`<p role="alert">This is no link that works here: it was already used, has expired, or is not complete.</p>`}
        <div class="row">
          <input
            id="link"
            name="link"
            type="text"
            required
            autocomplete="off"
            spellcheck="false"
            aria-describedby="link.help"
          />
          <button class="second">Continue</button>
        </div>
      </form>`,
  };
};

/** The way back is a link: browsers do not send the cookie with a redirect that began on the provider's site. */
export const signedInPage = (consent: string): Page => ({
  title: 'You are signed in',
  body: html` <p>Now you can decide what the app may do.</p>
    <div class="buttons">${pageButton(consent, 'Continue')}</div>`,
});

export const expiredPage = (): Page => ({
  status: 400,
  title: 'This request is over',
  body: html`<p role="alert">
    You have answered it, it is more than a quarter of an hour old, or it was begun in another browser or at
    another address. If you allowed it, the app is connected, and you can close this page. If not, go back to
    the app and connect again.
  </p>`,
});

function clientFacts({ publishedAt, redirectUri }: AskingClient): Html {
  const publisher =
    publishedAt === undefined
      ? 'unknown: it says its name itself, and nobody has checked it'
      : named(publishedAt);
  return html` <dt>Published by</dt>
    <dd>${publisher}</dd>
    <dt>Then you go to</dt>
    <dd>${targetOf(redirectUri)}</dd>`;
}

function targetOf(redirectUri: string): Html | string {
  const url = new URL(redirectUri);
  if (isLoopback(url)) return html`an app on this computer (${named(url.host)})`;
  return url.protocol === 'https:' ? named(url.host) : html`the app that opens ${named(url.protocol)}`;
}

/** Any program on a machine can receive what is sent to it, any can take a scheme, and a host may publish what others have written. */
const warningOf = ({ name, redirectUri, publishedAt }: AskingClient): Html | undefined =>
  redirectUri.startsWith('https:') && new URL(redirectUri).host === publishedAt
    ? undefined
    : html`<p class="warn">
        Go on only if you have just started this yourself, in ${visible(name)}. Another program could use its
        name.
      </p>`;

/** Returns what a policy of form targets calls an address. */
function sourceOf(redirectUri: string): string {
  const { protocol, origin } = new URL(redirectUri);
  return protocol === 'https:' || protocol === 'http:' ? origin : protocol;
}
