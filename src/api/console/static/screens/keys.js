import { useState } from 'preact/hooks';
import { Change, Confirm } from '../dialog.js';
import { ask, hrefOf, html, isOwnKey, place, say, useLoaded } from '../lib.js';
import {
  Bar,
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
import { counted, number, usedUp } from '../words.js';
import { CreateDialog, EditDialog, RotateDialog } from './key-dialogs.js';
import { Tenants } from './tenants.js';
import { Usage } from './usage.js';

const LIMIT = 50;
const EVERY_MS = 15_000;

const TABS = /** @type {const} */ ([
  ['keys', 'API keys'],
  ['tenants', 'Tenants'],
  ['usage', 'Usage'],
]);

export default function Keys() {
  const { path } = place.value;
  const tab = path[1] ?? 'keys';
  const [isCreating, setCreating] = useState(false);
  // A new key appears in the list at once.
  const [made, setMade] = useState(0);
  return html`<${Screen}
    title="Keys"
    lead="Who may search and call, how much, and for whom."
    actions=${html`<${Change} class="first" onClick=${() => setCreating(true)}>Create a key<//>`}
  >
    <nav class="tabs" aria-label="Keys, tenants and usage">
      ${TABS.map(
        ([name, word]) =>
          html`<a href=${hrefOf(name === 'keys' ? 'keys' : ['keys', name])} aria-current=${name === tab ? 'page' : undefined}>${word}</a>`,
      )}
    </nav>
    ${tab === 'tenants' ? html`<${Tenants} key=${made} />` : tab === 'usage' ? html`<${Usage} />` : html`<${List} made=${made} onCreate=${() => setCreating(true)} />`}
    ${isCreating && html`<${CreateDialog} onClose=${() => setCreating(false)} onDone=${() => setMade(made + 1)} />`}
  <//>`;
}

/** @param {{ made: number, onCreate: () => void }} props */
function List({ made, onCreate }) {
  const { filters } = place.value;
  const query = { ...filters, state: filters['state'] === 'all' ? '' : (filters['state'] ?? 'active') };
  const keys = useLoaded(
    signal => ask('keys', { query: { ...query, limit: LIMIT }, signal }),
    [JSON.stringify(query), made],
    { everyMs: EVERY_MS },
  );
  const [asked, setAsked] = useState(
    /** @type {{ what: 'edit' | 'rotate' | 'revoke', one: any } | undefined} */ (undefined),
  );
  return html`<${Filters}>
      <${TextFilter} name="q" label="Text" placeholder="Name, id or user" isMain />
      <${TextFilter} name="tenant" label="Tenant" placeholder="All" />
      <${ChoiceFilter}
        name="state"
        label="State"
        any="Active"
        choices=${[
          ['ended', 'Revoked or expired'],
          ['all', 'All'],
        ]}
      />
    <//>
    <${Loaded} from=${keys}>
      ${(/** @type {any} */ { keys: rows, next_cursor }) =>
        rows.length === 0
          ? html`<${Nothing} isFiltered=${Object.keys(filters).length > 0} onCreate=${onCreate} />`
          : html`<${Rows} rows=${rows} onAsk=${setAsked} /><${Pager} next=${next_cursor} shown=${rows.length} one="key" />`}
    <//>
    ${asked && html`<${Asked} ...${asked} onClose=${() => setAsked(undefined)} onDone=${keys.reload} />`}`;
}

/** @param {{ isFiltered: boolean, onCreate: () => void }} props */
const Nothing = ({ isFiltered, onCreate }) =>
  isFiltered
    ? html`<${Empty} title="No key matches these filters."><a href=${hrefOf('keys')}>Clear the filters</a><//>`
    : html`<${Empty} title="There is no key in the database.">
        <p>Give each app a key of its own, so that you can limit and revoke it.</p>
        <${Change} onClick=${onCreate}>Create a key<//>
      <//>`;

/** @param {any} key @returns {import('../words.js').Said} */
function stateOf({ revoked_at, expires_at }) {
  if (revoked_at !== null) return { word: 'Revoked', tone: 'bad' };
  if (expires_at !== null && Date.parse(expires_at) <= Date.now()) return { word: 'Expired', tone: 'warn' };
  return { word: 'Active', tone: 'good' };
}

/** @param {{ rows: readonly any[], onAsk: (asked: any) => void }} props */
const Rows = ({ rows, onAsk }) =>
  html`<${Table}
    caption="API keys"
    rows=${rows}
    keyOf=${(/** @type {any} */ one) => one.id}
    columns=${[
      {
        head: 'Key',
        class: 'ids',
        cell: (/** @type {any} */ { id, name, tenant, user }) =>
          html`<${Named} name=${name} id=${id} /><small class="quiet"
              >${tenant}${user !== null && html` · acts for <a href=${hrefOf('connections', { tenant, user_id: user })}>${user}</a>`}</small
            >`,
      },
      {
        head: 'Scopes',
        cell: (/** @type {any} */ { scopes }) =>
          html`<span class="tags">${scopes.map((/** @type {string} */ scope) => html`<${Tag} key=${scope} tone=${scope === 'admin' ? 'warn' : 'quiet'}>${scope}<//>`)}</span>`,
      },
      { head: 'This month', cell: (/** @type {any} */ key) => html`<${Quotas} ...${key} />` },
      {
        head: 'State',
        cell: (/** @type {any} */ key) =>
          html`<span class="named"><${State} said=${stateOf(key)} />${stateOf(key).word === 'Active' && usedUp(key).length > 0 && html`<${State} said=${QUOTA_USED_UP} />`}${key.expires_at && html`<small class="quiet">expires <${Time} at=${key.expires_at} /></small>`}</span>`,
      },
      {
        head: 'Last used',
        class: 'line',
        cell: (/** @type {any} */ { last_used_at }) => html`<${Time} at=${last_used_at} />`,
      },
      {
        head: '',
        class: 'end',
        cell: (/** @type {any} */ key) =>
          stateOf(key).word === 'Active' &&
          html`<span class="row-actions">
            <${Change} class="small" onClick=${() => onAsk({ what: 'edit', one: key })}>Edit<span class="unseen"> ${key.name}</span><//>
            ${key.client_id === null && html`<${Change} class="small" onClick=${() => onAsk({ what: 'rotate', one: key })}>Rotate<span class="unseen"> ${key.name}</span><//>`}
            <${Change} class="small danger" onClick=${() => onAsk({ what: 'revoke', one: key })}>Revoke<span class="unseen"> ${key.name}</span><//>
          </span>`,
      },
    ]}
  />`;

/** @param {{ used_this_month: Record<string, number>, monthly_quota: Record<string, number | null> }} props */
const Quotas = ({ used_this_month: used, monthly_quota: quota }) =>
  html`<span class="quotas">
    <${Quota} use="call" used=${used['calls'] ?? 0} quota=${quota['calls'] ?? null} />
    <${Quota} use="search" used=${used['searches'] ?? 0} quota=${quota['searches'] ?? null} />
  </span>`;

/** @type {import('../words.js').Said} */
const QUOTA_USED_UP = {
  word: 'Quota used up',
  tone: 'bad',
  help: 'Requests are refused until next month (UTC), or until you raise the quota.',
};

/** @param {{ use: string, used: number, quota: number | null }} props */
const Quota = ({ use, used, quota }) =>
  html`<span>
    <small>${quota === null ? counted(used, use) : `${number(used)} of ${counted(quota, use)}`}</small>
    ${quota !== null && html`<${Bar} value=${used} of=${quota} tone=${used >= quota ? 'bad' : used > 0.8 * quota ? 'warn' : ''} />`}
  </span>`;

/** @param {{ what: 'edit' | 'rotate' | 'revoke', one: any, onClose: () => void, onDone: () => void }} props */
function Asked({ what, one, onClose, onDone }) {
  if (what === 'edit') return html`<${EditDialog} one=${one} onClose=${onClose} onDone=${onDone} />`;
  if (what === 'rotate') return html`<${RotateDialog} one=${one} onClose=${onClose} onDone=${onDone} />`;
  return html`<${Confirm}
    title=${`Revoke ${one.name}?`}
    verb="Revoke"
    onClose=${onClose}
    onConfirm=${async () => {
      await ask(`keys/${encodeURIComponent(one.id)}/revoke`, { method: 'POST', body: {} });
      say(`Revoked ${one.name}.`);
      onDone();
    }}
  >
    ${isOwnKey(one.id) && html`<p class="callout warn">You are signed in with this key: you will be signed out.</p>`}
    <p>Requests with this key fail from now on. This cannot be undone. To replace a key without an interruption, rotate it.</p>
  <//>`;
}
