import type { Router } from 'express';
import type { ConnectionInfo } from '../../core/identity/connections/connections.ts';
import type { ManageView } from '../../core/identity/manage.ts';
import { formToken } from './cookies.ts';
import { route, requireToken, type Site } from './page-router.ts';
import { appName, html, named, seeOther, sendPage, visible, type Html, type Page } from './page.ts';
import { refusal } from './refusals.ts';
import { scopeItems } from './sign-in.ts';

/** Serves the page on which a user sees and ends connections. */
export function manageRoutes(router: Router, { core, cookies, base }: Site): void {
  const { manage } = core.identity;
  const list = `${base}/manage`;
  const formsFor = (cookie: string) => ({
    token: formToken(cookie),
    disconnect: `${list}/disconnect`,
    revokeAll: `${list}/revoke-all`,
    back: list,
  });

  route(router, '/manage', {
    async get({ request, response }) {
      const cookie = cookies.manager(request);
      const view = await manage.view(cookie);
      if (cookie === undefined || !view) return sendPage(response, refusal('manage_over'));
      const note = request.query['note'];
      const connections = view.connections.map(one =>
        one.server_id === null
          ? one
          : Object.assign(one, { title: core.catalogue.get(one.server_id)?.name ?? one.title }),
      );
      const shown = { ...view, connections };
      sendPage(response, listPage(shown, formsFor(cookie), typeof note === 'string' ? note : undefined));
    },
  });

  route(router, '/manage/disconnect', {
    async post({ request, response, actor }, fields) {
      const cookie = cookies.manager(request);
      if (cookie === undefined) return sendPage(response, refusal('manage_over'));
      requireToken(fields, cookie);
      const done = await manage.disconnect(cookie, fields['connection'] ?? '', actor);
      if (done === undefined) return sendPage(response, refusal('manage_over'));
      const ended: Note = fields['kind'] === 'key' ? 'deleted' : 'disconnected';
      const note: Note = done ? ended : 'gone';
      seeOther(response, `${list}?note=${note}`);
    },
  });

  route(router, '/manage/revoke-all', {
    async get({ request, response }) {
      const cookie = cookies.manager(request);
      const view = await manage.view(cookie);
      if (cookie === undefined || !view) return sendPage(response, refusal('manage_over'));
      sendPage(response, revokeAllPage(view, formsFor(cookie)));
    },
    async post({ request, response, actor }, fields) {
      const cookie = cookies.manager(request);
      if (cookie === undefined) return sendPage(response, refusal('manage_over'));
      requireToken(fields, cookie);
      const done = await manage.revokeAll(cookie, actor);
      cookies.clearManager(response);
      sendPage(response, done ? revokedAllPage() : refusal('manage_over'));
    },
  });

  // Registered last, because it also matches the paths above.
  route(router, '/manage/:link', {
    async get({ response, params: { link } }) {
      const isOpen = await manage.isOpen(link);
      sendPage(response, isOpen ? openPage(`${list}/${link}`) : refusal('manage_over'));
    },
    async post({ response, params: { link }, actor }) {
      const cookie = await manage.open(link, actor);
      if (cookie === undefined) return sendPage(response, refusal('manage_over'));
      cookies.setManager(response, cookie);
      seeOther(response, list);
    },
  });
}

/** The targets of a page's forms, and the token they carry. */
interface Forms {
  readonly token: string;
  readonly disconnect: string;
  readonly revokeAll: string;
  readonly back: string;
}

/** Messages that a redirect may show on the list, by code, so that no link can inject text. */
const NOTES: ReadonlyMap<string, string> = new Map([
  ['disconnected', 'Disconnected. The provider is being notified.'],
  ['deleted', 'The key was deleted. It may still be valid at the server itself.'],
  ['gone', 'That account was already disconnected.'],
]);
type Note = 'disconnected' | 'deleted' | 'gone';

/** The page behind a link. Only the button uses the link up, so that link previews do not. */
const openPage = (action: string): Page => ({
  title: 'Your connected accounts',
  body: html` <p>
      This link shows which accounts are connected, and lets you end their connections. It works once, within
      five minutes of being made; the page then stays open in this browser for a quarter of an hour.
    </p>
    <form method="post" action="${action}">
      <div class="buttons"><button>Continue</button></div>
    </form>`,
});

function listPage(view: ManageView, forms: Forms, note: string | undefined): Page {
  const said = NOTES.get(note ?? '');
  return {
    title: 'Your connected accounts',
    body: html` ${said !== undefined && html`<p class="note" role="status">${said}</p>`}
      <p>What ${appName(view)} can use for ${named(view.user)}:</p>
      ${
        view.connections.length === 0
          ? html`<p>No account is connected.</p>`
          : html`<ul class="plain">
              ${view.connections.map(one => entry(one, forms))}
            </ul>`
      }
      <section class="entry" aria-labelledby="everything">
        <h2 id="everything">Disconnect everything</h2>
        <p>
          Ends all connections, sign-ins and tokens that ${appName(view)} has for you here, and the keys that
          act for you, such as an IDE's.
        </p>
        <a class="button danger" href="${forms.revokeAll}">Disconnect everything…</a>
      </section>`,
  };
}

/** Says what keeps a connection from working. */
const TROUBLE: Readonly<Record<ConnectionInfo['status'], string | undefined>> = {
  active: undefined,
  needs_reauth: 'Must be connected again: the provider no longer accepts this connection.',
  rejected: 'The server no longer accepts this. Connect it again in the app.',
};

function entry(connection: ConnectionInfo, forms: Forms): Html {
  const isKey = connection.kind === 'credentials';
  const account = accountOf(connection);
  const label = account === undefined ? '' : `, ${isKey ? `key ${account}` : account}`;
  const trouble = TROUBLE[connection.status];
  return html`<li class="entry">
    <h2>${named(connection.title)}</h2>
    ${trouble !== undefined && html`<p class="warn">${trouble}</p>`} ${factsOf(connection, account)}
    <form method="post" action="${forms.disconnect}">
      <input type="hidden" name="token" value="${forms.token}" />
      <input type="hidden" name="connection" value="${connection.id}" />
      ${isKey && html`<input type="hidden" name="kind" value="key" />`}
      <button class="danger">
        ${isKey ? 'Delete' : 'Revoke'}<span class="unseen"> ${visible(connection.title + label)}</span>
      </button>
    </form>
  </li>`;
}

const factsOf = (connection: ConnectionInfo, account: string | undefined): Html =>
  html`<dl>
    ${account !== undefined && fact(connection.kind === 'credentials' ? 'Fingerprint of the key' : 'Account', named(account))}
    ${connection.issuer !== null && fact('Signed in at', named(new URL(connection.issuer).host))}
    ${
      connection.resource !== null &&
      fact(connection.server_id === null ? 'Only for' : 'Sent only to', named(connection.resource))
    }
    ${connection.kind !== 'credentials' && fact('Access', accessOf(connection))}
    ${fact('Connected', time(connection.connected_at))}
    ${fact('Last used', connection.last_used_at === null ? 'never' : time(connection.last_used_at))}
  </dl>`;

/** Tells one account or key from another. A server's authorization server need not say which account it is. */
function accountOf({ kind, account, fingerprint }: ConnectionInfo): string | undefined {
  if (kind === 'credentials') return fingerprint ?? '';
  return account ?? (kind === 'oauth' ? undefined : 'an account');
}

const accessOf = ({ scopes }: ConnectionInfo): Html | string =>
  scopes.length === 0 ? 'Whatever the account may do there' : scopeItems(scopes);

const fact = (term: string, value: Html | string): Html =>
  html`<dt>${term}</dt>
    <dd>${value}</dd>`;

/** Asks for confirmation before everything is revoked. Without scripts, this is a separate page. */
const revokeAllPage = (view: ManageView, forms: Forms): Page => ({
  title: 'Disconnect everything?',
  body: html` <p>
      All accounts that are connected for ${named(view.user)} will be disconnected, and ${appName(view)} will
      be signed out of everything it does for you here; keys that act for you, such as an IDE's, stop working.
      This cannot be undone; you can connect accounts again from the app.
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
const revokedAllPage = (): Page => ({
  title: 'All connections were removed',
  body: html` <p class="note" role="status">The providers are being notified.</p>
    <p>You can close this window.</p>`,
});

const TIME = new Intl.DateTimeFormat('en-GB', { dateStyle: 'long', timeStyle: 'short', timeZone: 'UTC' });

const time = (iso: string): Html => html`<time datetime="${iso}">${TIME.format(new Date(iso))} UTC</time>`;
