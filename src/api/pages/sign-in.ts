import type { Response, Router } from 'express';
import type { CallbackOutcome } from '../../core/identity/sign-in/sign-in.ts';
import type { LinkView, ResultView, SignInView } from '../../core/identity/sign-in/sign-in-view.ts';
import type { ServerHead } from '../../core/catalogue/entry.ts';
import { isOfAnotherDomain } from '../../core/identity/oauth/server-authorization.ts';
import { SwitchboardError } from '../../errors.ts';
import { formToken } from './cookies.ts';
import { leaving, route, noSuchPage, requireToken, type Site } from './page-router.ts';
import {
  appName,
  factsOf,
  html,
  named,
  pageButton,
  placeOf,
  requestOf,
  seeOther,
  sendPage,
  visible,
  type Html,
  type Page,
} from './page.ts';
import { pageSignInRoutes } from './page-sign-in.ts';
import { readServerForm, serverFormPage, type Sent } from './server-form.ts';
import { refusal } from './refusals.ts';

/** Serves a sign-in: our page if there is one, the provider's callback, the confirmation, the result. */
export function signInRoutes(router: Router, site: Site): void {
  const { core, cookies, base } = site;
  const { signIns } = core.identity;
  const pageSignIn = pageSignInRoutes(router, site);
  const { serverConnections } = core;
  const resultUrl = (result: string) => `${base}/oauth/done/${result}`;
  const sentTo = (ticket: string, token: string): Sent => ({
    action: `${base}/connect/${ticket}`,
    token,
    back: `${base}/manage`,
  });
  const goOn = (response: Response, outcome: CallbackOutcome) => {
    if (outcome.kind === 'refused') sendPage(response, refusal(outcome.reason));
    else seeOther(response, outcome.kind === 'app' ? outcome.url : resultUrl(outcome.result));
  };

  route(router, '/connect/:ticket', {
    async get({ request, response, params: { ticket } }) {
      const view = await signIns.view(ticket, cookies.browser(request));
      if (!view) return sendPage(response, refusal('link_over'));
      const token = formToken(cookies.ensureBrowser(request, response));
      sendPage(response, startPage(withName(view), sentTo(ticket, token)));
    },
    async post({ request, response, params: { ticket }, actor }, fields) {
      // Otherwise a page of somebody else could send this browser through a sign-in of theirs.
      const browser = requireToken(fields, cookies.browser(request));
      const view = await signIns.view(ticket, browser);
      if (view?.providerOrigin !== undefined || view?.serverId === undefined) {
        const providerUrl = await signIns.begin(ticket, browser);
        if (providerUrl === undefined) sendPage(response, refusal('link_over'));
        else seeOther(response, providerUrl);
        return;
      }
      await core.rateLimits.take('callback', request.ip ?? '');
      try {
        const given = readServerForm(fields);
        const from = { ticket, browser };
        const outcome = await serverConnections.submit(from, given, actor, leaving(response));
        goOn(response, outcome ?? { kind: 'refused', reason: 'link_over' });
      } catch (error) {
        const problem = problemOf(error);
        if (problem === undefined) throw error;
        const sent = sentTo(ticket, formToken(browser));
        sendPage(response, startPage(withName(view), { ...sent, problem }));
      }
    },
  });

  /** Puts the name of a server in the place of its id. */
  const withName = <View extends SignInView>(view: View): View =>
    view.serverId === undefined
      ? view
      : { ...view, provider: core.catalogue.get(view.serverId)?.name ?? view.serverId };

  const startPage = (view: LinkView, sent: Sent): Page =>
    view.serverId === undefined || view.providerOrigin !== undefined
      ? connectPage(view, sent, view.serverId === undefined ? undefined : core.catalogue.get(view.serverId))
      : serverFormPage({ view, form: serverConnections.form(view.serverId), ...sent });

  route(router, '/oauth/callback/:provider', {
    async onlyGet({ request, response, params: { provider }, actor }) {
      await core.rateLimits.take('callback', request.ip ?? '');
      const query = queryOf(request.url);
      if (await pageSignIn.returned({ request, response, provider, query, actor })) return;
      const outcome = await signIns.callback(provider, query, cookies.browser(request), actor);
      // Redirects, so that code and state do not stay in the history.
      goOn(response, outcome);
    },
  });

  for (const path of ['/oauth/return', '/oauth/return/:key'] as const) {
    route(router, path, {
      async onlyGet({ request, response, params, actor }) {
        await core.rateLimits.take('callback', request.ip ?? '');
        const key = 'key' in params ? params.key : undefined;
        const query = queryOf(request.url);
        const outcome = await signIns.returned(key, query, cookies.browser(request), actor);
        goOn(response, outcome);
      },
    });
  }

  route(router, '/oauth/done/:result', {
    async get({ request, response, params: { result } }) {
      const browser = cookies.browser(request);
      const found = await signIns.result(result, browser);
      if (!found) throw noSuchPage();
      const view = withName(found);
      if (view.state === 'error') sendPage(response, failedPage(view));
      else if (view.state === 'complete') sendPage(response, completePage(view, `${resultUrl(result)}/undo`));
      else sendPage(response, confirmPage(view, `${resultUrl(result)}/confirm`, formToken(browser ?? '')));
    },
  });

  route(router, '/oauth/done/:result/confirm', {
    async post({ request, response, params: { result }, actor }, fields) {
      const browser = cookies.browser(request);
      if (browser === undefined) return sendPage(response, refusal('other_browser'));
      requireToken(fields, browser);
      const { decision } = fields;
      if (decision !== 'connect' && decision !== 'cancel')
        throw new SwitchboardError('invalid_request', 'decision: must be connect or cancel');
      const isOwn = await signIns.confirm(result, browser, decision === 'connect', actor);
      if (isOwn) seeOther(response, resultUrl(result));
      else sendPage(response, refusal('link_over_or_elsewhere'));
    },
  });

  route(router, '/oauth/done/:result/undo', {
    // Needs no cookie: whoever sees the result can undo it, in any browser.
    async post({ response, params: { result }, actor }) {
      if (await signIns.undo(result, actor)) seeOther(response, resultUrl(result));
      else sendPage(response, refusal('undo_over'));
    },
  });
}

/** Returns what to tell a user about rejected values; undefined for any other failure. */
const problemOf = (error: unknown): string | undefined =>
  error instanceof SwitchboardError &&
  (error.code === 'invalid_request' || error.code === 'credentials_rejected')
    ? error.detail.replace(/^values\./, '')
    : undefined;

/** Returns the query unparsed: Express would turn repeated parameters into lists. */
function queryOf(url: string): URLSearchParams {
  const mark = url.indexOf('?');
  return new URLSearchParams(mark < 0 ? '' : url.slice(mark + 1));
}

/** The first page of mode `page`, before the provider's: shows who requests what. */
function connectPage(view: LinkView, { action, token, back }: Sent, server: ServerHead | undefined): Page {
  const provider = visible(view.provider);
  // The issuer says whose tokens these are; the user sees the page.
  const page = view.providerOrigin ?? '';
  const host = URL.parse(page)?.host ?? '';
  return {
    title: server ? `Connect ${provider}` : `Connect your ${provider} account`,
    // Chromium applies this to every redirect after a form, and many providers first redirect users to another host.
    formTargets: ['https:', view.providerOrigin, view.appOrigin].filter(one => one !== undefined),
    body: html` <p>${intentOf(view)}</p>
      ${factsOf(view, server && signInFacts(server, host))}
      ${
        server &&
        [page, view.issuer ?? page].some(at => isOfAnotherDomain(at, server.remoteUrl)) &&
        html`<p class="warn" role="alert">
          You sign in at ${named(host)}, which belongs to another domain than the server. Go on only if you
          know that ${named(view.provider)} signs its users in there.
        </p>`
      }
      ${wantedScopes(view)}
      <p class="note">
        Go on only if you began this yourself, ${placeOf(view)}. You sign in on the pages of
        ${server ? named(host) : named(view.provider)}; nobody here sees your password.
      </p>
      <form method="post" action="${action}">
        <input type="hidden" name="token" value="${token}" />
        <div class="buttons">
          <button>Continue to ${server ? named(host) : named(view.provider)}</button>
          ${view.isOfPage && pageButton(back)}
        </div>
      </form>`,
  };
}

/** Says who is to use which account. */
const intentOf = (view: LinkView): Html =>
  view.user === undefined
    ? html`You connect an account at ${named(view.provider)} for everybody who uses
      ${keysOf(view)}${view.forUsers ? ', and for the users of that tenant who have connected none' : ''}.`
    : html`${requestOf(view)} an account of yours at ${named(view.provider)}.`;

/** Names those who share a connection. */
const keysOf = ({ tenant }: SignInView): Html => html`the API keys of the tenant ${named(tenant)}`;

/** Begins a sentence about those who will use the account. */
const usersOf = (view: SignInView): Html =>
  view.user === undefined ? html`Everybody who uses ${keysOf(view)}` : appName(view, 'start');

/** Says at which address the server is, and where the user signs in for it. */
const signInFacts = (server: ServerHead, host: string): Html =>
  html`<dt>Its address</dt>
    <dd>${named(new URL(server.remoteUrl).host)}</dd>
    <dt>You sign in at</dt>
    <dd>${named(host)}</dd>`;

/** Lists what the sign-in asks for, apart from what an earlier one was granted. */
function wantedScopes(view: LinkView): Html {
  const { scopes, granted, serverId } = view;
  const who = view.user === undefined ? html`They` : appName(view, 'start');
  if (scopes.length === 0 && serverId !== undefined) {
    return html`<h2>${who} will be able to</h2>
      <ul>
        <li>Do whatever your account there may do: the server names no limits</li>
      </ul>`;
  }
  const added = scopes.filter(scope => !granted.includes(scope));
  const kept = scopes.filter(scope => granted.includes(scope));
  if (added.length === 0 || kept.length === 0) return scopeList(html`${who} will be able to`, scopes);
  return html`${scopeList(html`${who} will also be able to`, added)}
  ${scopeList(html`As before, ${view.user === undefined ? 'they' : appName(view)} will be able to`, kept)}`;
}

/** The last page of mode `page`: nothing is connected without its confirmation. */
function confirmPage(view: ResultView, action: string, token: string): Page {
  return {
    title: 'Connect this account?',
    heading: html`Connect ${accountName(view)} to ${appName(view)} as ${named(view.user ?? '')}?`,
    body: html` <p>You signed in at ${named(view.provider)}. Nothing is connected until you say so.</p>
      ${scopeList(html`${appName(view, 'start')} will be able to`, view.scopes)}
      <form method="post" action="${action}">
        <input type="hidden" name="token" value="${token}" />
        <div class="buttons">
          <button name="decision" value="connect">Connect</button>
          <button name="decision" value="cancel" class="second">Cancel</button>
        </div>
      </form>`,
  };
}

function completePage(view: ResultView, undoAction: string): Page {
  // A key is of no account, and a server's authorization server need not say which it is.
  const isOfAccount = view.serverId === undefined || view.account !== undefined;
  return {
    title: 'Connected',
    body: html` <p class="note" role="status">
        ${usersOf(view)} can now use
        ${isOfAccount ? html`${accountName(view)} at ${named(view.provider)}` : named(view.provider)}.
      </p>
      ${factsOf(view, isOfAccount ? accountFact(view) : undefined)}
      ${scopeList(html`What ${view.user === undefined ? 'they' : appName(view)} may do there`, view.scopes)}
      ${wayOn(view)}
      ${
        view.canUndo &&
        html`<form method="post" action="${undoAction}" class="entry">
          <h2>Not you?</h2>
          <p>
            If you did not mean to connect this, or were sent here by somebody else, undo it now. This is
            possible for ten minutes.
          </p>
          <button class="danger">Undo</button>
        </form>`
      }`,
  };
}

/** The result of a failed or undone sign-in. */
function failedPage(view: ResultView): Page {
  const { title, text } = (view.error && FAILURES[view.error]) ?? INCOMPLETE;
  const isUndone = view.error === 'undone';
  return {
    status: isUndone ? 200 : 400,
    title,
    body: html` <p role="${isUndone ? 'status' : 'alert'}" class="note">${text(view)}</p>
      ${wayOn(view)}`,
  };
}

type FailureText = { readonly title: string; readonly text: (view: ResultView) => Html };

const INCOMPLETE: FailureText = {
  title: 'Not connected',
  text: view =>
    html`The sign-in at ${named(view.provider)} was not completed, and nothing was connected.
    ${beginAgain(view)}`,
};

/** Texts for users; the core's own texts are for callers. Other failures are `INCOMPLETE`. */
const FAILURES: Readonly<Partial<Record<NonNullable<ResultView['error']>, FailureText>>> = {
  access_denied: {
    title: 'Not connected',
    text: view => html`Access to ${named(view.provider)} was not granted, and nothing was connected.`,
  },
  account_mismatch: {
    title: 'Not connected: this is another account',
    text: view =>
      html`You signed in to another account at ${named(view.provider)} than the one that ${appName(view)}
      expects. Nothing was changed. Go back, begin again, and choose that account.`,
  },
  revoked: {
    title: 'Not connected: your access was ended',
    text: view =>
      html`Your access was ended while you were signing in, and nothing was connected. ${beginAgain(view)}`,
  },
  server_moved: {
    title: 'Not connected: the server has moved',
    text: view =>
      html`${named(view.provider)} got another address, or was removed, while you were signing in. Nothing was
      connected. ${beginAgain(view)}`,
  },
  session_expired: {
    title: 'Not connected: it took too long',
    text: view =>
      html`A sign-in must be finished within five minutes. Nothing was connected. ${beginAgain(view)}`,
  },
  undone: {
    title: 'Undone',
    text: view =>
      view.serverId === undefined
        ? html`${appName(view, 'start')} can no longer use the account. ${named(view.provider)} is being told
          to end the access.`
        : html`${named(view.provider)} is no longer connected. If you signed in there, it is being told to end
          the access; a key that you entered may still be valid there.`,
  },
};

function beginAgain(view: ResultView): Html {
  if (view.user === undefined) return html`Begin again.`;
  return html`Go back to ${view.isOfPage ? 'your connections' : appName(view)} and begin again.`;
}

function wayOn({ returnUrl, app, isOfPage }: ResultView): Html {
  if (returnUrl === undefined) return html`<p>You can close this window.</p>`;
  if (isOfPage) return html`<p>${pageButton(returnUrl)}</p>`;
  return html`<p>
    <a class="button second" href="${returnUrl}" rel="noreferrer">Back to ${named(app ?? 'the app')}</a>
  </p>`;
}

const accountName = ({ account }: ResultView): Html =>
  account === undefined ? html`the account` : named(account);

/** The meanings of OpenID's own scopes; a provider's scopes are shown only by name. */
const MEANINGS: ReadonlyMap<string, string> = new Map([
  ['openid', 'Know which account this is'],
  ['email', 'See its e-mail address'],
  ['profile', 'See its name and picture'],
  ['offline_access', 'Keep access while you are away'],
]);

export const scopeItems = (scopes: readonly string[]): Html =>
  html`<ul>
    ${scopes.map(scope => {
      const meaning = MEANINGS.get(scope);
      return html`<li>${meaning !== undefined && html`${meaning} `}<code>${visible(scope)}</code></li>`;
    })}
  </ul>`;

const scopeList = (title: string | Html, scopes: readonly string[]): Html =>
  scopes.length === 0
    ? html``
    : html`<h2>${title}</h2>
        ${scopeItems(scopes)}`;

const accountFact = (view: ResultView): Html =>
  html`<dt>Account</dt>
    <dd>${accountName(view)}</dd>`;
