import type { SignedInClient } from '../../core/access/client-keys.ts';
import type { ConnectionInfo } from '../../core/identity/connections/connections.ts';
import type { ManagedConnection, ManageView, Offer } from '../../core/identity/manage.ts';
import { SwitchboardError, type ErrorCode } from '../../errors.ts';
import { askerName, callList } from './manage-calls.ts';
import { appName, html, named, pageButton, time, timeOfDay, visible, type Html, type Page } from './page.ts';
import { scopeItems } from './sign-in.ts';

/** The calls on the list of connections itself. */
const NEWEST_CALLS = 5;

/** The targets of a page's forms and links, and the token that the forms carry. */
export interface Forms {
  readonly token: string;
  readonly connect: string;
  readonly disconnect: string;
  readonly signOut: string;
  readonly revokeAll: string;
  readonly calls: string;
  readonly back: string;
}

/** Messages that a redirect may show on the list, by code, so that no link can inject text. */
const NOTES: ReadonlyMap<string, string> = new Map([
  ['disconnected', 'Disconnected. The provider is being notified.'],
  ['deleted', 'The key was deleted. It may still be valid at the server itself.'],
  ['gone', 'That account was already disconnected.'],
  ['signed_out', 'The app was signed out. It can no longer act for you.'],
  ['signed_out_before', 'That app was already signed out.'],
]);
export type Note = 'disconnected' | 'deleted' | 'gone' | 'signed_out' | 'signed_out_before';

/** The page behind a link. Only the button uses the link up, so that link previews do not. */
export const openPage = (view: { app: string | undefined }, action: string): Page => ({
  title: 'Your connected accounts',
  body: html` <p>
      This link shows which accounts ${appName(view)} can use for you and what was called with them, and lets
      you connect and disconnect. It works once, within five minutes of being made; the page then stays open
      in this browser for a quarter of an hour.
    </p>
    <p class="note">Go on only if you asked ${appName(view)} for this link yourself.</p>
    <form method="post" action="${action}">
      <div class="buttons"><button>Continue</button></div>
    </form>`,
});

interface Found {
  readonly query: string;
  /** Undefined while searches are not possible. */
  readonly offers: readonly Offer[] | undefined;
}

interface List {
  readonly view: ManageView;
  readonly forms: Forms;
  readonly found: Found | undefined;
  readonly note: string | undefined;
}

export function listPage({ view, forms, found, note }: List): Page {
  const said = NOTES.get(note ?? '');
  const { connections, calls } = view;
  return {
    title: 'Your connected accounts',
    body: html` ${said !== undefined && html`<p class="note" role="status">${said}</p>`}
      <p>What ${appName(view)} can use for ${named(view.user)}:</p>
      ${
        connections.length === 0
          ? html`<p>No account is connected.</p>`
          : html`<ul class="plain">
              ${connections.map(one => entry(one, view, forms))}
            </ul>`
      }
      ${connectSection(view, forms, found)} ${clientSection(view.clients, forms)}
      <section class="entry" aria-labelledby="called">
        <h2 id="called">Called for you lately</h2>
        ${callList(view, calls.slice(0, NEWEST_CALLS))}
        ${
          calls.length > NEWEST_CALLS &&
          html`<a class="button second" href="${forms.calls}">All ${calls.length} entries…</a>`
        }
      </section>
      <section class="entry" aria-labelledby="everything">
        <h2 id="everything">Disconnect everything</h2>
        <p>
          Ends all connections, sign-ins and tokens that ${appName(view)} has for you here, and the keys that
          act for you, such as an IDE's. The list of calls is deleted.
        </p>
        <a class="button danger" href="${forms.revokeAll}">Disconnect everything…</a>
      </section>
      <p class="help">This page stays open in this browser until ${timeOfDay(view.until)}.</p>`,
  };
}

/** Shows the MCP clients that the user has signed in. */
function clientSection(clients: readonly SignedInClient[], forms: Forms): Html | false {
  if (clients.length === 0) return false;
  return html`<section class="entry" aria-labelledby="clients">
    <h2 id="clients">Apps that act for you</h2>
    <p>You have signed in from these. They can call tools with the accounts that you have connected.</p>
    <ul class="plain">
      ${clients.map(
        ({ id, name, clientId, resource, createdAt, lastUsedAt }) =>
          html`<li class="entry">
            <h3>${named(name)}</h3>
            <dl>
              ${URL.canParse(clientId) && fact('Published by', named(new URL(clientId).host))}
              ${!resource.endsWith('/mcp') && fact('Only for', named(resource.slice(resource.lastIndexOf('/') + 1)))}
              ${fact('Signed in', time(createdAt))}
              ${fact('Last used', lastUsedAt === undefined ? 'never' : time(lastUsedAt))}
            </dl>
            <form method="post" action="${forms.signOut}">
              <input type="hidden" name="token" value="${forms.token}" />
              <input type="hidden" name="client" value="${id}" />
              <div class="buttons">
                <button class="danger">Sign out<span class="unseen"> ${visible(name)}</span></button>
              </div>
            </form>
          </li>`,
      )}
    </ul>
  </section>`;
}

function connectSection(view: ManageView, forms: Forms, found: Found | undefined): Html {
  return html`<section class="entry" aria-labelledby="connect">
    <h2 id="connect">Connect a server</h2>
    ${
      view.wanted.length > 0 &&
      html`<p>Calls for you were refused, because you have not connected these:</p>
        ${offerList(view.wanted, forms)}`
    }
    <form method="get" action="${forms.back}#connect">
      <label for="find">Find a server</label>
      <p id="find.help" class="help">By its name, or by what it should do.</p>
      <div class="row">
        <input
          id="find"
          name="find"
          type="search"
          maxlength="200"
          autocomplete="off"
          value="${found?.query ?? ''}"
          aria-describedby="find.help"
        />
        <button class="second">Find</button>
      </div>
    </form>
    ${found && results(found, view, forms)}
  </section>`;
}

function results({ query, offers }: Found, { wanted, connections }: ManageView, forms: Forms): Html {
  if (!offers) return html`<p role="alert">Searching is not possible right now. Try again in a minute.</p>`;
  const isShown = ({ serverId, isConnected }: Offer) =>
    wanted.some(one => one.serverId === serverId) ||
    (!isConnected && connections.some(one => one.server_id === serverId));
  const more = offers.filter(one => !isShown(one));
  if (more.length > 0) return offerList(more, forms);
  const nothing = more.length < offers.length ? 'Nothing else' : 'Nothing';
  return html`<p role="status">${nothing} to connect was found for “${named(query)}”.</p>`;
}

const offerList = (offers: readonly Offer[], forms: Forms): Html =>
  html`<ul class="plain">
    ${offers.map(
      ({ serverId, name, host, about, isConnected }) =>
        html`<li class="offer">
          <div>
            <strong>${named(name)}</strong> <small>${named(host)}</small>
            ${about !== undefined && html`<p class="help">${named(about)}</p>`}
          </div>
          ${
            isConnected
              ? html`<span class="state">connected</span>`
              : html`<form method="post" action="${forms.connect}">
                  <input type="hidden" name="token" value="${forms.token}" />
                  <input type="hidden" name="server" value="${serverId}" />
                  <button>Connect<span class="unseen"> ${visible(name)} (${serverId})</span></button>
                </form>`
          }
        </li>`,
    )}
  </ul>`;

/** Says what keeps a connection from working; undefined if it works. */
function troubleOf({ kind, status }: ConnectionInfo): string | undefined {
  if (status === 'active') return undefined;
  if (status === 'needs_reauth')
    return 'Must be connected again: the provider no longer accepts this connection.';
  return `Refused by the server: it no longer accepts this ${kind === 'credentials' ? 'key' : 'sign-in'}.`;
}

function entry(connection: ManagedConnection, view: ManageView, forms: Forms): Html {
  const isKey = connection.kind === 'credentials';
  const account = accountOf(connection);
  const label = account === undefined ? '' : `, ${isKey ? `key ${account}` : account}`;
  const which = html`<span class="unseen"> ${visible(connection.title + label)}</span>`;
  const trouble = troubleOf(connection);
  const hidden = html`<input type="hidden" name="token" value="${forms.token}" />
    <input type="hidden" name="connection" value="${connection.id}" />`;
  return html`<li class="entry">
    <h2>${named(connection.title)} ${trouble === undefined && html`<span class="state">works</span>`}</h2>
    ${trouble !== undefined && html`<p class="warn">${trouble}</p>`} ${factsOf(connection, account, view)}
    <div class="buttons">
      ${
        connection.canRenew &&
        html`<form method="post" action="${forms.connect}">
          ${hidden}
          <button class="${trouble === undefined && 'second'}">${renewal(connection)}${which}</button>
        </form>`
      }
      <form method="post" action="${forms.disconnect}">
        ${hidden} ${isKey && html`<input type="hidden" name="kind" value="key" />`}
        <button class="danger">${isKey ? 'Delete' : 'Revoke'}${which}</button>
      </form>
    </div>
  </li>`;
}

function renewal({ kind, status }: ConnectionInfo): string {
  if (kind === 'credentials') return 'Enter another key';
  return status === 'active' ? 'Sign in again' : 'Connect again';
}

const factsOf = (connection: ManagedConnection, account: string | undefined, view: ManageView): Html =>
  html`<dl>
    ${account !== undefined && fact(connection.kind === 'credentials' ? 'Fingerprint of the key' : 'Account', named(account))}
    ${connection.issuer !== null && fact('Signed in at', named(new URL(connection.issuer).host))}
    ${
      connection.resource !== null &&
      fact(connection.server_id === null ? 'Only for' : 'Sent only to', named(connection.resource))
    }
    ${fact('Allows', accessOf(connection))}
    ${connection.asker && fact('Asked for by', askerName(connection.asker, view))}
    ${fact('Connected', time(connection.connected_at))}
    ${fact('Last used', connection.last_used_at === null ? 'never' : time(connection.last_used_at))}
  </dl>`;

/** Tells one account or key from another. A server's authorization server need not say which account it is. */
function accountOf({ kind, account, fingerprint }: ConnectionInfo): string | undefined {
  if (kind === 'credentials') return fingerprint ?? '';
  return account ?? (kind === 'oauth' ? undefined : 'an account');
}

function accessOf({ kind, scopes }: ConnectionInfo): Html | string {
  if (kind === 'credentials') return 'Whatever the key may do there';
  return scopes.length === 0 ? 'Whatever the account may do there' : scopeItems(scopes);
}

const fact = (term: string, value: Html | string): Html =>
  html`<dt>${term}</dt>
    <dd>${value}</dd>`;

/** Asks for confirmation before everything is revoked. Without scripts, this is a separate page. */
export const revokeAllPage = (view: ManageView, forms: Forms): Page => ({
  title: 'Disconnect everything?',
  body: html` <p>
      All accounts that are connected for ${named(view.user)} will be disconnected, and ${appName(view)} will
      be signed out of everything it does for you here; keys that act for you, such as an IDE's, stop working.
      The list of what was called for you is deleted. This cannot be undone; you can connect accounts again
      from the app.
    </p>
    <form method="post" action="${forms.revokeAll}">
      <input type="hidden" name="token" value="${forms.token}" />
      <div class="buttons">
        <button class="danger">Disconnect everything</button>
        <a class="button second" href="${forms.back}">Keep them</a>
      </div>
    </form>`,
});

/** Responds to the form directly: the list has expired, so a redirect could not show it. */
export const revokedAllPage = (): Page => ({
  title: 'All connections were removed',
  body: html` <p class="note" role="status">The providers are being notified.</p>
    <p>You can close this window.</p>`,
});

/** Leads to a provider's own page, after which the app confirms the sign-in. */
export const elsewherePage = ({ url, name }: { url: string; name: string }, back: string): Page => ({
  title: 'Connect an account',
  heading: html`Connect ${named(name)}`,
  body: html` <p>
      You sign in at ${named(new URL(url).host)}, and then come to the app, which confirms that it is you.
    </p>
    <div class="buttons">
      <a class="button" href="${url}" rel="noreferrer">Continue to ${named(new URL(url).host)}</a>
      ${pageButton(back)}
    </div>`,
});

interface Problem {
  readonly code: ErrorCode;
  readonly text: string;
}

const AWAY = 'The server or its sign-in page cannot be reached right now. Try again in a minute.';
const NO_SETUP =
  'Whoever runs this service has to set something up for it first. Ask them, or the app’s support team.';
const GONE = 'It is no longer offered here.';

/** Texts for users, instead of the errors' own texts for callers and operators. */
const PROBLEMS: Partial<Record<ErrorCode, string>> = {
  operator_setup_needed: NO_SETUP,
  provider_not_configured: NO_SETUP,
  provider_unavailable: AWAY,
  unavailable: AWAY,
  upstream_protocol: 'What it says about signing in cannot be trusted, so nothing was sent to it.',
  invalid_request: 'It needs no connection.',
  server_not_found: GONE,
  server_inactive: GONE,
  rate_limited: 'You have tried this too often in the last minute. Wait a minute, then try again.',
};

/** Returns why something could not be connected, if that is for a user to know. */
export function problemOf(error: unknown): Problem | undefined {
  if (!(error instanceof SwitchboardError)) return undefined;
  const text = PROBLEMS[error.code];
  return text === undefined ? undefined : { code: error.code, text };
}

export const problemPage = ({ text }: Problem, status: number, back: string): Page => ({
  status,
  title: 'This cannot be connected now',
  body: html` <p role="alert">${text} Nothing was changed.</p>
    <div class="buttons">${pageButton(back)}</div>`,
});
