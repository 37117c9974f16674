import { useId } from 'preact/hooks';
import { ask, filter, hrefOf, html, place, useLoaded } from '../lib.js';
import { Empty, Filters, Loaded, Named, Pager, Table, TextFilter } from '../parts.js';
import { number } from '../words.js';

const LIMIT = 100;

/** Calls and searches of each key by day. */
export function Usage() {
  const { filters } = place.value;
  const usage = useLoaded(
    signal => ask('usage', { query: { ...filters, limit: LIMIT }, signal }),
    [JSON.stringify(filters)],
  );
  return html`<${Filters}>
      <${TextFilter} name="key_id" label="Key" placeholder="Id" isMain />
      <${TextFilter} name="tenant" label="Tenant" placeholder="All" />
      <${DayFilter} name="from" label="From" />
      <${DayFilter} name="to" label="To" />
    <//>
    <${Loaded} from=${usage}>
      ${(/** @type {any} */ { usage: rows, next_cursor }) =>
        rows.length === 0
          ? html`<${Empty} title="No use in this time.">Usage is kept for 400 days, by key and day (UTC).<//>`
          : html`<${Table}
                caption="Usage by day and key"
                rows=${rows}
                keyOf=${(/** @type {any} */ one) => `${one.day} ${one.key_id}`}
                columns=${[
                  {
                    head: 'Day',
                    class: 'line',
                    cell: (/** @type {any} */ { day }) => html`<time datetime=${day}>${day}</time>`,
                  },
                  {
                    head: 'Key',
                    cell: (/** @type {any} */ { key_id, name }) =>
                      html`<${Named} href=${hrefOf(['keys', 'usage'], { key_id })} name=${name ?? 'SWITCHBOARD_API_KEY'} id=${key_id} />`,
                  },
                  {
                    head: 'Tenant',
                    cell: (/** @type {any} */ { tenant }) => html`<code>${tenant ?? 'local'}</code>`,
                  },
                  { head: 'Calls', class: 'num', cell: (/** @type {any} */ { calls }) => number(calls) },
                  {
                    head: 'Searches',
                    class: 'num',
                    cell: (/** @type {any} */ { searches }) => number(searches),
                  },
                ]}
              />
              <${Pager} next=${next_cursor} shown=${rows.length} one="record" />`}
    <//>`;
}

/** @param {{ name: string, label: string }} props */
function DayFilter({ name, label }) {
  const id = useId();
  return html`<div class="filter">
    <label for=${id}>${label}</label>
    <input
      id=${id}
      type="date"
      value=${place.value.filters[name] ?? ''}
      onChange=${(/** @type {Event & { currentTarget: HTMLInputElement }} */ event) => filter({ [name]: event.currentTarget.value })}
    />
  </div>`;
}
