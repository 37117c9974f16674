import { useState } from 'preact/hooks';
import { Change } from '../dialog.js';
import { ask, hrefOf, html, place, useLoaded } from '../lib.js';
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
import { ACCESS, counted, HEALTH, number, said } from '../words.js';
import { EntryDialog } from './entry.js';
import Server from './server.js';

const LIMIT = 50;

export default function Catalogue() {
  const [, id] = place.value.path;
  return id ? html`<${Server} key=${id} id=${id} />` : html`<${List} />`;
}

/** @param {Record<string, { word: string }>} words @returns {[string, string][]} */
const choicesOf = words => Object.entries(words).map(([value, { word }]) => [value, word]);

function List() {
  const { filters } = place.value;
  const [isAdding, setAdding] = useState(false);
  const list = useLoaded(
    signal => ask('catalogue', { query: { ...filters, limit: LIMIT }, signal }),
    [JSON.stringify(filters)],
  );
  const isFiltered = Object.keys(filters).length > 0;
  return html`<${Screen}
    title="Catalogue"
    lead="The servers that agents can find and call."
    actions=${html`<${Change} class="first" onClick=${() => setAdding(true)}>Add a server<//>`}
  >
    <${Filters}>
      <${TextFilter} name="q" label="Text" placeholder="Name, id or address" isMain />
      <${ChoiceFilter} name="access_status" label="Access" choices=${choicesOf(ACCESS)} />
      <${ChoiceFilter} name="health" label="Health" choices=${choicesOf(HEALTH)} />
      <${ChoiceFilter}
        name="tools"
        label="Tools"
        choices=${[
          ['yes', 'Known'],
          ['no', 'Not known'],
          ['suspicious', 'With warnings'],
        ]}
      />
      <${ChoiceFilter}
        name="active"
        label="State"
        any="Active"
        choices=${[
          ['no', 'Deactivated'],
          ['all', 'All'],
        ]}
      />
      <${ChoiceFilter}
        name="origin"
        label="From"
        choices=${[
          ['shipped', 'Shipped'],
          ['operator', 'Added here'],
          ['registry', 'A registry'],
        ]}
      />
    <//>
    <${Loaded} from=${list}>
      ${(/** @type {any} */ { servers, total, next_cursor }) =>
        servers.length === 0
          ? html`<${Nothing} isFiltered=${isFiltered} onAdd=${() => setAdding(true)} /><${OfOtherStates} />`
          : html`<${Servers} servers=${servers} /><${Pager} next=${next_cursor} shown=${servers.length} total=${total} one="server" />`}
    <//>
    ${isAdding && html`<${EntryDialog} onClose=${() => setAdding(false)} onSaved=${open} />`}
  <//>`;
}

/** @param {{ id: string }} server */
const open = ({ id }) => {
  location.hash = hrefOf(['catalogue', id]);
};

/** @param {{ isFiltered: boolean, onAdd: () => void }} props */
const Nothing = ({ isFiltered, onAdd }) =>
  isFiltered
    ? html`<${Empty} title="No server matches these filters."><a href=${hrefOf('catalogue')}>Clear the filters</a><//>`
    : html`<${Empty} title="The catalogue is empty.">
        <p>Add a server here, or import a file with <code>npx switchboard catalogue import FILE</code>.</p>
        <${Change} onClick=${onAdd}>Add a server<//>
      <//>`;

/** Says that servers of another state match, which the list shows only when asked. */
function OfOtherStates() {
  const { cursor: _page, ...filters } = place.value.filters;
  const all = { ...filters, active: 'all' };
  const found = useLoaded(
    signal => ask('catalogue', { query: { ...all, limit: 1 }, signal }),
    [JSON.stringify(all)],
  );
  const { total = 0 } = found.data ?? {};
  if (total === 0) return undefined;
  const which = filters['active'] === 'no' ? 'active' : 'deactivated';
  return html`<p class="callout warn" role="status">
    ${counted(total, `${which} server`)} ${total === 1 ? 'matches' : 'match'}.${' '}
    <a href=${hrefOf('catalogue', all)}>Show ${total === 1 ? 'it' : 'them'}</a>
  </p>`;
}

/** @param {{ servers: readonly any[] }} props */
const Servers = ({ servers }) =>
  html`<${Table}
    caption="Servers"
    rows=${servers}
    keyOf=${(/** @type {any} */ one) => one.id}
    columns=${[
      {
        head: 'Server',
        cell: (/** @type {any} */ { id, name, active, unanswered }) =>
          html`<${Named} href=${hrefOf(['catalogue', id])} name=${name} id=${id} />
            ${!active && html`<${Tag} tone="bad">${unanswered ? 'Gave no answer for 30 days' : 'Deactivated'}<//>`}`,
      },
      {
        head: 'Access',
        cell: (/** @type {any} */ { access }) => html`<${State} said=${said(ACCESS, access.status)} />`,
      },
      {
        head: 'Health',
        cell: (/** @type {any} */ { health }) =>
          html`<${State} said=${said(HEALTH, health?.status ?? 'unvisited')} />`,
      },
      {
        head: 'Checked',
        class: 'line',
        cell: (/** @type {any} */ { health }) => html`<${Time} at=${health?.checked_at} />`,
      },
      {
        head: 'Tools',
        class: 'num',
        cell: (/** @type {any} */ { tools, suspicious_tools }) =>
          html`${suspicious_tools > 0 && html`<${Tag} tone="warn">${number(suspicious_tools)} with warnings<//> `}${
            tools === 0 ? html`<span class="quiet">–</span>` : number(tools)
          }`,
      },
    ]}
  />`;
