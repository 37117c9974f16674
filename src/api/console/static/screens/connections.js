import { useState } from 'preact/hooks';
import { Change, Confirm, Dialog } from '../dialog.js';
import { ask, hrefOf, html, place, say, useLoaded } from '../lib.js';
import {
  ChoiceFilter,
  Empty,
  Filters,
  Loaded,
  Named,
  Pager,
  Screen,
  State,
  Table,
  Tag,
  TextFilter,
  Time,
} from '../parts.js';
import { CONNECTION, counted, listed, said } from '../words.js';

const LIMIT = 50;

/** @type {Record<string, string>} */
const KINDS = { oauth: 'Account at the server', credentials: 'Key', provider: 'Account at a provider' };

/** Users belong to a tenant: without one, the filter means the first one. */
const LOCAL = 'local';

export default function Connections() {
  const { filters } = place.value;
  const query = filters['user_id'] === undefined ? filters : { tenant: LOCAL, ...filters };
  const list = useLoaded(
    signal => ask('connections/all', { query: { ...query, limit: LIMIT }, signal }),
    [JSON.stringify(query)],
  );
  const [asked, setAsked] = useState(/** @type {any} */ (undefined));
  const isFiltered = Object.keys(filters).length > 0;
  const close = () => setAsked(undefined);
  return html`<${Screen} title="Connections" lead="The accounts and keys with which calls reach servers.">
    <${Filters}>
      <${TextFilter} name="user_id" label="User" placeholder="Your app's id for the user" isMain />
      <${TextFilter} name="tenant" label="Tenant" placeholder=${filters['user_id'] === undefined ? 'All' : LOCAL} />
      <${TextFilter} name="server_id" label="Server" placeholder="Id" />
      <${ChoiceFilter} name="status" label="Status" choices=${Object.entries(CONNECTION).map(([value, { word }]) => [value, word])} />
      <${ChoiceFilter} name="kind" label="Kind" choices=${Object.entries(KINDS)} />
      <${ChoiceFilter}
        name="shared"
        label="Holder"
        choices=${[
          ['no', 'A user'],
          ['yes', 'A whole tenant'],
        ]}
      />
    <//>
    ${query['user_id'] !== undefined && html`<${OneUser} user=${query['user_id']} tenant=${query['tenant']} onAsk=${setAsked} />`}
    <${Loaded} from=${list}>
      ${(/** @type {any} */ { connections, next_cursor }) =>
        connections.length === 0
          ? html`<${Nothing} isFiltered=${isFiltered} />`
          : html`<${Rows} rows=${connections} onAsk=${setAsked} />
              <${Pager} next=${next_cursor} shown=${connections.length} one="connection" />`}
    <//>
    ${asked?.connection && html`<${RevokeOne} connection=${asked.connection} onClose=${close} onDone=${list.reload} />`}
    ${asked?.user && html`<${RevokeAll} user=${asked.user} tenant=${asked.tenant} onClose=${close} onDone=${list.reload} />`}
  <//>`;
}

/** @param {{ isFiltered: boolean }} props */
const Nothing = ({ isFiltered }) =>
  isFiltered
    ? html`<${Empty} title="No connection matches these filters."><a href=${hrefOf('connections')}>Clear the filters</a><//>`
    : html`<${Empty} title="Nobody has connected an account yet.">
        Users connect when a call needs it. For your own calls, open a server that wants
        ${' '}<a href=${hrefOf('catalogue', { access_status: 'connect' })}>a sign-in or a key</a> and connect it.
      <//>`;

/** @param {{ user: string, tenant: string, onAsk: (asked: any) => void }} props */
const OneUser = ({ user, tenant, onAsk }) =>
  html`<div class="actions">
    <span>User <strong>${user}</strong> in tenant <code>${tenant}</code></span>
    <${Change} class="danger small" onClick=${() => onAsk({ user, tenant })}>Revoke everything of this user<//>
  </div>`;

/** @param {{ rows: readonly any[], onAsk: (asked: any) => void }} props */
const Rows = ({ rows, onAsk }) =>
  html`<${Table}
    caption="Connections"
    rows=${rows}
    keyOf=${(/** @type {any} */ one) => one.id}
    columns=${[
      {
        head: 'Server or provider',
        cell: (/** @type {any} */ { title, server_id, provider }) =>
          html`<${Named} href=${server_id ? hrefOf(['catalogue', server_id]) : undefined} name=${title} id=${server_id ?? provider} />`,
      },
      {
        head: 'Holder',
        cell: (/** @type {any} */ { user, tenant, for_users }) =>
          user === null
            ? html`<span>Whole tenant</span> <code class="quiet">${tenant}</code>${for_users && html` <${Tag}>Users, too<//>`}`
            : html`<${Named} href=${hrefOf('connections', { tenant, user_id: user })} name=${user} id=${tenant} />`,
      },
      {
        head: 'Account',
        cell: (/** @type {any} */ { account, fingerprint, kind }) =>
          html`<span class="named"><span>${account ?? (fingerprint ? html`<code>${fingerprint}</code>` : html`<span class="quiet">–</span>`)}</span>
            <small class="quiet">${KINDS[kind]}</small></span>`,
      },
      {
        head: 'Status',
        cell: (/** @type {any} */ { status }) => html`<${State} said=${said(CONNECTION, status)} />`,
      },
      {
        head: 'Last used',
        class: 'line',
        cell: (/** @type {any} */ { last_used_at }) => html`<${Time} at=${last_used_at} />`,
      },
      {
        head: 'Connected',
        class: 'line',
        cell: (/** @type {any} */ { connected_at }) => html`<${Time} at=${connected_at} />`,
      },
      {
        head: '',
        class: 'end',
        cell: (/** @type {any} */ connection) =>
          html`<${Change} class="small danger" onClick=${() => onAsk({ connection })}>
            Revoke<span class="unseen">${` ${connection.title}, ${connection.user ?? connection.tenant}`}</span>
          <//>`,
      },
    ]}
  />`;

/** @param {{ connection: any, onClose: () => void, onDone: () => void }} props */
const RevokeOne = ({ connection, onClose, onDone }) =>
  html`<${Confirm}
    title="Revoke this connection?"
    verb="Revoke"
    onClose=${onClose}
    onConfirm=${async () => {
      const { ended } = await ask(`connections/${encodeURIComponent(connection.id)}/revoke`, {
        method: 'POST',
        body: {},
      });
      say(ended ? `Revoked the connection with ${connection.title}.` : 'The connection was gone already.');
      onDone();
    }}
  >
    <p>
      Calls of <strong>${connection.user ?? `tenant ${connection.tenant}`}</strong> to <strong>${connection.title}</strong> fail until
      somebody connects again. ${connection.kind === 'credentials' ? 'The stored key is deleted.' : 'The provider is told to end its tokens.'}
    </p>
  <//>`;

/**
 * Counts what a user has, in words; empty if nothing.
 * @param {{ connections: number, keys: number, identity_sessions: number, pending_sign_ins: number }} held
 */
const inWords = ({ connections, keys, identity_sessions, pending_sign_ins }) =>
  listed(
    [
      [connections, 'connection'],
      [keys, 'key'],
      [identity_sessions, 'identity session'],
      [pending_sign_ins, 'pending sign-in'],
    ].flatMap(([count, one]) => (Number(count) === 0 ? [] : [counted(Number(count), String(one))])),
  );

/** @param {{ user: string, tenant: string, onClose: () => void, onDone: () => void }} props */
function RevokeAll({ user, tenant, onClose, onDone }) {
  const query = { tenant, user_id: user };
  const held = useLoaded(signal => ask('users/holdings', { query, signal }), [user, tenant]);
  const nothing = `Nothing was found for ${user} in tenant ${tenant}.`;
  const title = `Revoke everything of ${user}?`;
  if (held.data === undefined || inWords(held.data) === '')
    return html`<${Dialog} title=${title} onClose=${onClose}>
      <${Loaded} from=${held}>
        ${() => html`<p>${nothing} Check the id and the tenant.</p>`}
      <//>
      <div class="buttons"><button type="button" onClick=${onClose}>Close</button></div>
    <//>`;
  return html`<${Confirm}
    title=${title}
    verb="Revoke everything"
    onClose=${onClose}
    onConfirm=${async () => {
      const { ended } = await ask('users/revoke', { method: 'POST', body: query });
      const words = inWords(ended);
      say(words === '' ? nothing : `Ended ${words} of ${user}.`, words === '' ? 'bad' : 'good');
      onDone();
    }}
  >
    <p>
      Ends <strong>${inWords(held.data)}</strong> of <strong>${user}</strong> in tenant <code>${tenant}</code>. An app that still
      has the user can sign in and connect again.
    </p>
  <//>`;
}
