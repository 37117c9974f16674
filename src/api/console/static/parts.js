import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { filter, hrefOf, html, place, say } from './lib.js';
import { ago, counted, dateTime } from './words.js';

/** @typedef {import('preact').ComponentChildren} Children */

/** Shapes on a grid of 16, drawn with lines. @type {Record<string, string>} */
const ICONS = {
  overview: 'M2 13h12M4 13V8M8 13V3M12 13V6',
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM11 11l3 3',
  catalogue: 'M2.5 3h11v3.5h-11zM2.5 9.5h11V13h-11zM5 4.8h.01M5 11.2h.01',
  connections: 'M6.5 9.5l3-3M7 4.5l1-1a3 3 0 0 1 4.5 4.5l-1 1M9 11.5l-1 1A3 3 0 0 1 3.5 8l1-1',
  setup:
    'M2 4.5h6M12 4.5h2M2 11.5h2M8 11.5h6M10 6.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM6 13.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4z',
  keys: 'M5.5 10.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8.5 7.5H14M12 7.5V10',
  activity: 'M1.5 8h3l2-5 3 10 2-5h3',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  warning: 'M8 2l6.5 11.5h-13zM8 6.5v3M8 11.5h.01',
  close: 'M4 4l8 8M12 4l-8 8',
  menu: 'M2 4h12M2 8h12M2 12h12',
};

/** @param {{ name: string }} props */
export const Icon = ({ name }) =>
  html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${ICONS[name]} /></svg>`;

/** A state in words, with a coloured dot. @param {{ said: import('./words.js').Said }} props */
export const State = ({ said: { word, tone, help } }) =>
  html`<span class="state ${tone}" title=${help}>${word}</span>`;

/** @param {{ tone?: string, children: Children, title?: string }} props */
export const Tag = ({ tone = 'quiet', children, title }) =>
  html`<span class="tag ${tone}" title=${title}>${children}</span>`;

/** @param {{ at: string | null | undefined, none?: string }} props */
export const Time = ({ at, none = 'never' }) =>
  at
    ? html`<time datetime=${at} title=${dateTime(at)}>${ago(at)}</time>`
    : html`<span class="quiet">${none}</span>`;

/**
 * A share of something as a bar. Its value is written next to it by the caller.
 * @param {{ value: number, of?: number, tone?: string }} props
 */
export const Bar = ({ value, of = 1, tone = '' }) =>
  html`<span class="bar ${tone}" aria-hidden="true">
    <span style=${{ width: `${Math.min(100, Math.max(0, (100 * value) / (of || 1)))}%` }}></span>
  </span>`;

/** @param {{ text: string, label: string }} props label: what is copied, for screen readers */
const Copy = ({ text, label }) =>
  html`<button type="button" class="icon-only" title="Copy" onClick=${() => void copy(text, label)}>
    <${Icon} name="copy" /><span class="unseen">Copy ${label}</span>
  </button>`;

/** @param {string} text @param {string} label */
async function copy(text, label) {
  // Browsers have no clipboard for pages without TLS, except on this machine.
  const copied = await navigator.clipboard?.writeText(text).then(
    () => true,
    () => false,
  );
  if (copied) say(`Copied ${label}.`);
  else say(`This browser does not let the page copy. Select ${label} and copy it.`, 'bad');
}

/** A value to copy, such as an address. @param {{ text: string, label: string }} props */
export const Copyable = ({ text, label }) =>
  html`<span class="copyable"><code>${text}</code><${Copy} text=${text} label=${label} /></span>`;

/** The first screen leaves the focus where the browser puts it. */
let hasOpened = false;

/**
 * The frame of a screen: its heading, which gets the focus when the screen opens, and its actions.
 * @param {{ title: string, lead?: Children, actions?: Children, back?: { href: string, word: string }, children: Children }} props
 */
export function Screen({ title, lead, actions, back, children }) {
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    document.title = `${title} · Switchboard`;
  }, [title]);
  useEffect(() => {
    if (hasOpened) heading.current?.focus({ preventScroll: true });
    hasOpened = true;
    scrollTo(0, 0);
  }, []);
  return html`<div class="screen">
    ${back && html`<a class="back" href=${back.href}>← ${back.word}</a>`}
    <header>
      <div>
        <h1 tabindex="-1" ref=${heading}>${title}</h1>
        ${lead && html`<p class="lead">${lead}</p>`}
      </div>
      ${actions && html`<div class="actions">${actions}</div>`}
    </header>
    ${children}
  </div>`;
}

/** @param {{ title: string, actions?: Children, note?: Children, children: Children }} props */
export function Section({ title, actions, note, children }) {
  const id = useId();
  return html`<section class="card" aria-labelledby=${id}>
    <header>
      <h2 id=${id}>${title}</h2>
      ${actions && html`<div class="actions">${actions}</div>`}
    </header>
    ${note && html`<p class="quiet">${note}</p>`} ${children}
  </section>`;
}

/** Says that there is nothing, and what to do next. @param {{ title: string, children?: Children }} props */
export const Empty = ({ title, children }) =>
  html`<div class="empty">
    <p><strong>${title}</strong></p>
    ${children && html`<div>${children}</div>`}
  </div>`;

/** The screens where the causes of refusals are mended, by the code of the error. @type {Record<string, { href: string, word: string }>} */
const REMEDIES = { operator_setup_needed: { href: hrefOf('setup'), word: 'Open Setup' } };

/**
 * @typedef {{ message: string, code?: string | undefined, requestId?: string | undefined, link?: { href: string, word: string } | undefined }} Said
 * link: where it can be mended
 */

/** @param {{ problem: Said | undefined, onRetry?: () => void }} props */
export function Trouble({ problem, onRetry }) {
  if (!problem) return undefined;
  const link = problem.link ?? REMEDIES[problem.code ?? ''];
  return html`<div class="callout bad" role="alert">
    <p>${problem.message}</p>
    ${link && html`<p><a href=${link.href}>${link.word}</a></p>`}
    ${problem.requestId && html`<p class="quiet">Request <code>${problem.requestId}</code></p>`}
    ${onRetry && html`<button type="button" class="small" onClick=${onRetry}>Try again</button>`}
  </div>`;
}

/**
 * Shows loaded data: the data, a failure, or that it is still loading.
 * @template T
 * @param {{ from: { data: T | undefined, problem: import('./lib.js').Problem | undefined, isLoading: boolean, reload: () => void }, children: (data: T) => Children }} props
 */
export function Loaded({ from: { data, problem, isLoading, reload }, children }) {
  const focused = useRef(/** @type {Element | null} */ (null));
  // The row that had the focus may be gone.
  useEffect(() => {
    if (focused.current?.isConnected !== false || document.activeElement !== document.body) return;
    const heading = document.querySelector('main h1');
    if (heading instanceof HTMLElement) heading.focus({ preventScroll: true });
  }, [data]);
  /** @param {FocusEvent & { target: Element }} event */
  const remember = ({ target }) => {
    focused.current = target;
  };
  return html`<div class="loaded" aria-busy=${isLoading} onFocusIn=${remember}>
    ${problem && problem.status !== 0 && html`<${Trouble} problem=${problem} onRetry=${reload} />`}
    ${data === undefined ? isLoading && html`<p class="loading">Loading…</p>` : children(data)}
  </div>`;
}

/**
 * @template Row
 * @typedef {{ head: string, cell: (row: Row) => Children, class?: string }} Column
 */

/**
 * A list as a table. On a phone each row becomes a card.
 * @template Row
 * @param {{ caption: string, columns: readonly (Column<Row> | false | undefined)[], rows: readonly Row[], keyOf: (row: Row) => string | number }} props
 */
export function Table({ caption, columns, rows, keyOf }) {
  const shown = columns.filter(column => column !== false && column !== undefined);
  return html`<div class="table">
    <table>
      <caption class="unseen">
        ${caption}
      </caption>
      <thead>
        <tr>
          ${shown.map(
            column =>
              html`<th scope="col" class=${column.class}>
                ${column.head === '' ? html`<span class="unseen">Actions</span>` : column.head}
              </th>`,
          )}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          row =>
            html`<tr key=${keyOf(row)}>
              ${shown.map(column => html`<td class=${column.class} data-head=${column.head}>${column.cell(row)}</td>`)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/**
 * Steps through the pages of a list. Each page has an address, so that the back button leads to the one before.
 * @param {{ next: string | null | undefined, shown: number, total?: number | undefined, one: string }} props one: what the list has, as a singular
 */
export function Pager({ next, shown, total, one }) {
  const { path, filters } = place.value;
  const { cursor, ...rest } = filters;
  const isPart = cursor !== undefined || next;
  return html`<nav class="pager" aria-label=${`Pages of ${one}s`}>
    <span class="quiet" role="status">
      ${total === undefined ? `${counted(shown, one)}${isPart ? ' on this page' : ''}` : `${shown} of ${counted(total, one)}`}
    </span>
    ${cursor !== undefined && html`<a class="button small" href=${hrefOf(path, rest)}>First page</a>`}
    ${next && html`<a class="button small" href=${hrefOf(path, { ...rest, cursor: next })}>Next page</a>`}
  </nav>`;
}

const TYPING_MS = 250;

/**
 * A text filter of a list. It changes the address shortly after typing stops. `/` focuses the first one of a screen.
 * @param {{ name: string, label: string, placeholder?: string, isMain?: boolean }} props
 */
export function TextFilter({ name, label, placeholder, isMain = false }) {
  const id = useId();
  const value = place.value.filters[name] ?? '';
  const [text, setText] = useState(value);
  const own = useRef(value);
  const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  // A change by this field itself, which the address has trimmed, must not disturb further typing.
  useEffect(() => {
    if (value !== own.current) setText(value);
    own.current = value;
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  /** @param {string} typed */
  const type = typed => {
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      own.current = typed.trim();
      filter({ [name]: own.current }, { replace: true });
    }, TYPING_MS);
  };
  return html`<div class="filter ${isMain ? 'main' : ''}">
    <label for=${id}>${label}</label>
    <input
      id=${id}
      type="search"
      autocomplete="off"
      spellcheck=${false}
      data-search=${isMain}
      placeholder=${placeholder}
      value=${text}
      onInput=${(/** @type {InputEvent & { currentTarget: HTMLInputElement }} */ event) => type(event.currentTarget.value)}
    />
  </div>`;
}

/**
 * A filter with fixed choices.
 * @param {{ name: string, label: string, any?: string, isMain?: boolean, choices: readonly (readonly [value: string, word: string])[] }} props
 */
export function ChoiceFilter({ name, label, any = 'All', isMain = false, choices }) {
  const id = useId();
  return html`<div class=${`filter ${isMain ? 'main' : ''}`}>
    <label for=${id}>${label}</label>
    <select
      id=${id}
      value=${place.value.filters[name] ?? ''}
      onChange=${(/** @type {Event & { currentTarget: HTMLSelectElement }} */ event) =>
        filter({ [name]: event.currentTarget.value })}
    >
      <option value="">${any}</option>
      ${choices.map(([value, word]) => html`<option value=${value}>${word}</option>`)}
    </select>
  </div>`;
}

/**
 * The filters of a list. A phone shows the main one, and the others behind a button.
 * @param {{ children: Children }} props
 */
export function Filters({ children }) {
  const [isOpen, setOpen] = useState(false);
  const { cursor: _page, ...set } = place.value.filters;
  const count = Object.keys(set).length;
  return html`<div class=${`filters ${isOpen ? 'open' : ''}`} role="search">
    ${children}
    <button type="button" class="more" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      ${isOpen ? 'Fewer filters' : 'Filters'}${count > 0 && html`<${Tag} tone="info">${count}<//>`}
    </button>
  </div>`;
}

/** A name with its id below. @param {{ href?: string, name: Children, id: string }} props */
export const Named = ({ href, name, id }) =>
  html`<span class="named main">
    ${href ? html`<a href=${href}>${name}</a>` : html`<span>${name}</span>`}<code>${id}</code>
  </span>`;

/** Facts as a list of terms. Absent ones are omitted. @param {{ facts: readonly (readonly [term: string, fact: Children] | false | undefined)[] }} props */
export const Facts = ({ facts }) =>
  html`<dl class="facts">
    ${facts.map(fact => {
      if (!fact || fact[1] === undefined || fact[1] === null) return undefined;
      return html`<div>
        <dt>${fact[0]}</dt>
        <dd>${fact[1]}</dd>
      </div>`;
    })}
  </dl>`;
