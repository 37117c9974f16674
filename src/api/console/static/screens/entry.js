import { useState } from 'preact/hooks';
import { Dialog, Field, Form, jsonOf } from '../dialog.js';
import { ask, hrefOf, html, say } from '../lib.js';
import { counted } from '../words.js';

/** The things that a server may require, in the words of an entry. @type {readonly (readonly [string, string])[]} */
const AUTH_KINDS = [
  ['', 'Find out'],
  ['none', 'Nothing'],
  ['credentials', 'A key'],
  ['oauth', 'A sign-in at the server (OAuth)'],
  ['provider', 'An account at an identity provider'],
];

/** Entries that were read carry the names under which kinds are stored. @type {Record<string, string>} */
const KINDS = { static_header: 'credentials', own_oauth: 'oauth', user_oauth: 'provider', unknown: '' };

/**
 * Adds a server, or edits one.
 * @param {{ server?: any, onClose: () => void, onSaved: (server: any) => void }} props server: the entry to edit
 */
export function EntryDialog({ server, onClose, onSaved }) {
  const [isJson, setJson] = useState(false);
  /** @param {Record<string, string>} fields */
  const save = async fields => {
    const entry = isJson ? jsonOf('The entry', fields['json'] ?? '') : entryOf(fields, server);
    const saved = await store(entry, server);
    for (const warning of saved.warnings ?? []) say(warning, 'bad');
    say(server ? `Saved ${saved.name}.` : `Added ${saved.name}.`);
    onClose();
    onSaved(saved);
    if (saved.remote_url !== server?.remote_url) void readTools(saved);
  };
  return html`<${Dialog} title=${server ? `Edit ${server.name}` : 'Add a server'} isWide=${isJson} onClose=${onClose}>
    <${Form} verb=${server ? 'Save' : 'Add'} onClose=${onClose} onSend=${save}>
      ${isJson ? html`<${AsJson} server=${server} />` : html`<${AsForm} server=${server} />`}
      <p class="help">
        <button type="button" class="small" onClick=${() => setJson(!isJson)}>
          ${isJson ? 'Edit as a form' : 'Edit as JSON'}
        </button>
        ${' '}The JSON form has every field of a catalogue file. Changes made in one form are lost when you switch.
      </p>
    <//>
  <//>`;
}

/** Stores an entry. A new server never replaces another one. @param {any} entry @param {any} server the one that is edited */
async function store(entry, server) {
  const id = server?.id ?? (entry.id || idFrom(entry.name));
  if (id === '') throw new Error('No id can be made from this name. Enter one.');
  if (!server) await requireFree(id);
  return ask(`catalogue/${encodeURIComponent(id)}`, { method: 'PUT', body: { ...entry, id } });
}

/** Returns the id of a server that has only a name. @param {string} name */
const idFrom = name =>
  name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '')
    .slice(0, 128);

/** Refuses an id that a server has. @param {string} id */
async function requireFree(id) {
  const taken = await ask(`catalogue/${encodeURIComponent(id)}`).catch(problem => {
    if (problem.status !== 404) throw problem;
  });
  if (!taken) return;
  const which = taken.active ? 'a server' : 'a deactivated server';
  throw Object.assign(new Error(`There is ${which} with the id ${id}. Choose another id.`), {
    link: { href: hrefOf(['catalogue', id]), word: `Open ${taken.name}` },
  });
}

/** The next step before a server lists its tools, by its access. @type {Record<string, string>} */
const NEXT_STEPS = {
  connect: 'Choose “Connect”.',
  setup_needed: 'Choose “Set up its sign-in”.',
};

/** A server with a new address is asked for its tools at once, as far as it answers without an account. @param {any} server */
async function readTools({ id, name, access }) {
  if (access.status !== 'open' && access.status !== 'unknown') return;
  const path = `catalogue/${encodeURIComponent(id)}`;
  await ask(`${path}/tools`, { method: 'POST', body: {} }).then(
    ({ tools }) => say(`${name} has ${counted(tools, 'tool')}.`),
    async problem => {
      const { access: found } = await ask(path).catch(() => ({ access }));
      const next = NEXT_STEPS[found.status];
      if (next) say(`${name} lists its tools only to those who are let in. ${next}`, 'bad');
      else say(`${name} did not list its tools: ${problem.message}`, 'bad');
    },
  );
  // A refusal may have shown how the server lets callers in.
  dispatchEvent(new CustomEvent('server-changed', { detail: id }));
}

/** @param {{ server?: any }} props */
const AsForm = ({ server }) =>
  html`<div class="fields">
    <${Field}
      name="remote_url"
      label="Address"
      type="url"
      help="The MCP endpoint of the server."
      placeholder="https://mcp.example.com/mcp"
      defaultValue=${server?.remote_url}
    />
    <div class="pair">
      <${Field} name="name" label="Name" maxlength="200" defaultValue=${server?.name} />
      ${
        !server &&
        html`<${Field}
          name="id"
          label="Id"
          pattern="[a-z0-9][a-z0-9._\\-]{0,127}"
          title="a-z, 0-9, '.', '_' and '-'"
          isOptional
          help="Agents call the server by it. Empty: made from the name."
        />`
      }
    </div>
    <${Field}
      name="description"
      label="What it can do"
      help="Searches compare this with what agents ask for. Write it as tasks, in English."
      control=${(/** @type {any} */ joined) =>
        html`<textarea rows="3" maxlength="4000" required defaultValue=${server?.description} ...${joined}></textarea>`}
    />
    <div class="pair">
      <${Field}
        name="kind"
        label="Requires"
        control=${(/** @type {any} */ joined) =>
          html`<select ...${joined}>
            ${AUTH_KINDS.map(
              ([value, word]) =>
                html`<option value=${value} selected=${value === kindOf(server)}>${word}</option>`,
            )}
          </select>`}
      />
      <${Field}
        name="provider"
        label="Identity provider"
        isOptional
        help="Only if it requires an account at one."
        defaultValue=${server?.auth?.provider}
      />
    </div>
    <${Field}
      name="categories"
      label="Categories"
      isOptional
      placeholder="code, productivity"
      defaultValue=${(server?.categories ?? []).join(', ')}
    />
  </div>`;

/** @param {any} server */
const kindOf = server => KINDS[server?.auth?.kind] ?? server?.auth?.kind ?? '';

/** Returns the entry of a form. Fields that the form does not have keep their values. @param {Record<string, string>} fields @param {any} server */
function entryOf({ kind = '', provider = '', categories = '', ...fields }, server) {
  const words = categories.split(',').map(word => word.trim());
  const auth = {
    ...server?.auth,
    kind: kind || 'unknown',
    provider: kind === 'provider' && provider !== '' ? provider : undefined,
  };
  return {
    // Without tools in the entry, the known ones stay.
    ...entryOnly(server ?? {}),
    ...fields,
    categories: words.filter(word => word !== ''),
    auth,
  };
}

const EXAMPLE = {
  id: 'example',
  name: 'Example',
  description: 'Creates and finds examples.',
  remote_url: 'https://mcp.example.com/mcp',
  auth: { kind: 'credentials' },
};

/** Members of a shown server that are its state, and its tools, which stay as they are when the entry has none. */
const STATE = new Set([
  'access',
  'active',
  'health',
  'origin',
  'registry',
  'tools',
  'tools_source',
  'tools_listed_at',
  'unanswered',
  'warnings',
]);

/** @param {{ server?: any }} props */
const AsJson = ({ server }) =>
  html`<${Field}
    name="json"
    label="Entry"
    control=${(/** @type {any} */ joined) =>
      html`<textarea class="code" rows="18" spellcheck=${false} required defaultValue=${JSON.stringify(entryOnly(server ?? EXAMPLE), null, 2)} ...${joined}></textarea>`}
  />`;

/** @param {any} server */
const entryOnly = server => Object.fromEntries(Object.entries(server).filter(([name]) => !STATE.has(name)));
