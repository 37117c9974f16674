import { useEffect, useState } from 'preact/hooks';
import { ask, filter, hrefOf, html, isOnline, place, useLoaded } from '../lib.js';
import { ChoiceFilter, Empty, Filters, Loaded, Pager, Screen, State, Table, TextFilter } from '../parts.js';
import { ago, dateTime, eventWords, OUTCOME, REFUSALS, said } from '../words.js';

const LIMIT = 50;
const FOLLOW_MS = 2_500;
/** Records that commit late may have lower ids than those already shown. */
const OVERLAP = 20;
const MAX_FOLLOWED = 500;

const EVENTS = [
  'catalogue_imported',
  'catalogue_probed',
  'catalogue_reindexed',
  'catalogue_synced',
  'client_signed_in',
  'client_token_reused',
  'connection_created',
  'connection_needs_reauth',
  'connection_rejected',
  'connection_replaced',
  'connection_revoked',
  'connection_undone',
  'console_link_created',
  'console_signed_in',
  'console_signed_out',
  'key_changed',
  'key_created',
  'key_revoked',
  'key_rotated',
  'manage_link_created',
  'manage_link_opened',
  'manage_signed_in',
  'oauth_client_entered',
  'oauth_client_removed',
  'provider_revocation',
  'refresh_race',
  'refresh_reuse',
  'request_refused',
  'server_added',
  'server_changed',
  'server_deactivated',
  'server_reactivated',
  'server_tools_read',
  'session_completed',
  'session_created',
  'session_failed',
  'tenant_changed',
  'tokens_issued',
  'user_revoked',
  'webhook_changed',
  'webhook_disabled',
  'webhook_dropped',
  'webhook_removed',
  'webhook_rotated',
];

export default function Activity() {
  const { follow, ...filters } = place.value.filters;
  const isFollowing = follow === 'yes';
  const names = useLoaded(keyNames, []);
  return html`<${Screen}
    title="Activity"
    lead="What keys, users and operators did: the audit log of 90 days."
    actions=${html`<button type="button" class=${isFollowing ? 'first' : ''} aria-pressed=${isFollowing} onClick=${() => filter({ follow: isFollowing ? '' : 'yes' })}>
      ${isFollowing ? 'Following live' : 'Follow live'}
    </button>`}
  >
    <${Filters}>
      <${ChoiceFilter} name="event" label="Event" isMain choices=${EVENTS.map(event => [event, eventWords(event)])} />
      <${ChoiceFilter} name="outcome" label="Outcome" choices=${Object.entries(OUTCOME).map(([value, { word }]) => [value, word])} />
      <${TextFilter} name="tenant" label="Tenant" placeholder="All" />
      <${TextFilter} name="key" label="Done by or to the key" placeholder="Id, operator or console" />
      <${TextFilter} name="user" label="User" placeholder="Your app's id" />
    <//>
    <${isFollowing ? Followed : Paged} key=${JSON.stringify(filters)} filters=${filters} names=${names.data ?? NO_NAMES} />
  <//>`;
}

/** @type {ReadonlyMap<string, string>} */
const NO_NAMES = new Map();
const KEYS_READ = 1_000;

/** Returns the names of keys by id. @param {AbortSignal} signal @returns {Promise<ReadonlyMap<string, string>>} */
async function keyNames(signal) {
  const { keys } = await ask('keys', { query: { limit: KEYS_READ }, signal });
  return new Map(keys.map((/** @type {any} */ { id, name }) => [id, name]));
}

/** Returns the query of filters. A user is named by your app's id, or by the internal one. @param {Record<string, string>} filters */
const queryOf = ({ user, ...filters }) =>
  /^usr_[0-9A-Za-z]{22}$/.test(user ?? '') ? { ...filters, user } : { ...filters, user_id: user };

/** @param {{ filters: Record<string, string>, names: ReadonlyMap<string, string> }} props */
function Paged({ filters, names }) {
  const list = useLoaded(
    signal => ask('audit', { query: { ...queryOf(filters), limit: LIMIT }, signal }),
    [],
  );
  return html`<${Loaded} from=${list}>
    ${(/** @type {any} */ { audit, next_cursor }) =>
      audit.length === 0
        ? html`<${Nothing} isFiltered=${Object.keys(filters).length > 0} />`
        : html`<${Records} records=${audit} names=${names} /><${Pager} next=${next_cursor} shown=${audit.length} one="record" />`}
  <//>`;
}

/** The newest records, to which new ones are added as they happen. @param {{ filters: Record<string, string>, names: ReadonlyMap<string, string> }} props */
function Followed({ filters: { cursor: _page, ...filters }, names }) {
  const [records, setRecords] = useState(/** @type {readonly any[] | undefined} */ (undefined));
  const [problem, setProblem] = useState(/** @type {any} */ (undefined));
  useEffect(() => {
    const stop = new AbortController();
    /** @type {readonly any[]} */
    let known = [];
    /** @type {ReturnType<typeof setTimeout>} */
    let timer;
    const look = async () => {
      if (isOnline.value && document.visibilityState === 'visible')
        await ask('audit', {
          query: {
            ...queryOf(filters),
            limit: LIMIT,
            after: known.length === 0 ? undefined : Math.max(0, known[0].id - OVERLAP),
          },
          signal: stop.signal,
        }).then(
          ({ audit }) => {
            const ids = new Set(known.map(({ id }) => id));
            const fresh = audit.filter((/** @type {any} */ { id }) => !ids.has(id));
            known = [...fresh, ...known].toSorted((a, b) => b.id - a.id).slice(0, MAX_FOLLOWED);
            setRecords(known);
            setProblem(undefined);
          },
          failed => setProblem(failed),
        );
      if (!stop.signal.aborted) timer = setTimeout(() => void look(), FOLLOW_MS);
    };
    void look();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, []);
  return html`<${Loaded} from=${{ data: records, problem, isLoading: records === undefined }}>
    ${(/** @type {readonly any[]} */ shown) =>
      shown.length === 0
        ? html`<${Empty} title="Waiting for the first record." />`
        : html`<p class="quiet" role="status">Following: the newest record is from ${ago(shown[0].at)}.</p>
            <${Records} records=${shown} names=${names} />`}
  <//>`;
}

/** @param {{ isFiltered: boolean }} props */
const Nothing = ({ isFiltered }) =>
  isFiltered
    ? html`<${Empty} title="No record matches these filters."><a href=${hrefOf('activity')}>Clear the filters</a><//>`
    : html`<${Empty} title="Nothing has happened yet.">Changes and sign-ins appear here. Calls and searches are in the <a href="#/">overview</a>.<//>`;

/** @param {{ records: readonly any[], names: ReadonlyMap<string, string> }} props */
const Records = ({ records, names }) =>
  html`<${Table}
    caption="Audit records, newest first"
    rows=${records}
    keyOf=${(/** @type {any} */ one) => one.id}
    columns=${[
      {
        head: 'Event',
        class: 'line',
        cell: (/** @type {any} */ { event }) => html`<strong>${eventWords(event)}</strong>`,
      },
      {
        head: 'When',
        class: 'line',
        cell: (/** @type {any} */ { at }) => html`<time datetime=${at}>${dateTime(at)}</time>`,
      },
      {
        head: 'Outcome',
        cell: (/** @type {any} */ { outcome }) => html`<${State} said=${said(OUTCOME, outcome)} />`,
      },
      {
        head: 'Who',
        class: 'line',
        cell: (/** @type {any} */ record) => html`<${Who} ...${record} names=${names} />`,
      },
      {
        head: 'Details',
        cell: (/** @type {any} */ { details, key_id, user, user_id }) =>
          html`<span class="details">
            ${key_id && user && html`<span><span class="quiet">user</span> <${User} id=${user} appId=${user_id} /></span>`}
            <${Details} details=${details} names=${names} />
          </span>`,
      },
    ]}
  />`;

/** Names actors other than a key with a name of its own. @type {Record<string, string>} */
const ACTORS = {
  operator: 'Command line',
  console: 'Console, by a link',
  environment: 'SWITCHBOARD_API_KEY',
  page: 'User, on their page',
};

/** @param {{ key_id: string | null, user: string | null, user_id: string | null, tenant: string | null, ip: string | null, names: ReadonlyMap<string, string> }} props */
const Who = ({ key_id, user, user_id, tenant, ip, names }) =>
  html`<span class="named">
    ${
      key_id
        ? html`<a href=${hrefOf('activity', { key: key_id })}>${ACTORS[key_id] ?? html`<${Key} id=${key_id} names=${names} />`}</a>`
        : user && html`<${User} id=${user} appId=${user_id} />`
    }
    <small class="quiet">${[tenant, ip].filter(Boolean).join(' · ')}</small>
  </span>`;

/** A user by the app's own id. @param {{ id: string, appId: string | null }} props */
const User = ({ id, appId }) =>
  html`<a href=${hrefOf('activity', { user: id })} title=${id}>${appId ?? html`<code>${id}</code>`}</a>`;

/** A key by its name, if it has one. @param {{ id: string, names: ReadonlyMap<string, string> }} props */
const Key = ({ id, names }) => html`<span>${names.get(id)} <code>${id}</code></span>`;

/** Names of details that are not words themselves. @type {Record<string, string>} */
const DETAIL_WORDS = {
  serverId: 'server',
  for_user: 'for one user',
  with_user: 'with its user',
  calls: 'calls per month',
  searches: 'searches per month',
  further: 'further ones since the last record',
  reason: 'because',
  justInTime: 'during a call',
  overlap_sec: 'overlap in seconds',
  dead_since: 'unreachable since',
};

/** @param {{ details: Record<string, unknown>, names: ReadonlyMap<string, string> }} props */
const Details = ({ details, names }) =>
  html`${Object.entries(details)
    .filter(([, value]) => value !== false && value !== 0)
    .map(
      ([name, value]) =>
        html`<span key=${name}>
            <span class="quiet">${DETAIL_WORDS[name] ?? name.replaceAll('_', ' ')}</span>
            ${value !== true && html` <${Detail} name=${name} value=${String(value)} names=${names} />`}
          </span>`,
    )}`;

/** @param {{ name: string, value: string, names: ReadonlyMap<string, string> }} props */
function Detail({ name, value, names }) {
  if (name === 'server' || name === 'serverId')
    return html`<a href=${hrefOf(['catalogue', value])}>${value}</a>`;
  if (name === 'key' || names.has(value))
    return html`<a href=${hrefOf('activity', { key: value })}><${Key} id=${value} names=${names} /></a>`;
  if (name === 'reason') return html`<span>${REFUSALS[value] ?? value}</span>`;
  return html`<span>${name === 'dead_since' ? dateTime(value) : value.replaceAll(',', ', ')}</span>`;
}
