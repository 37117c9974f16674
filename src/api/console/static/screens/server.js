import { useEffect, useState } from 'preact/hooks';
import { Change, Confirm } from '../dialog.js';
import { ask, hrefOf, html, say, useLoaded } from '../lib.js';
import { Copyable, Empty, Facts, Loaded, Screen, Section, State, Tag, Time } from '../parts.js';
import { ACCESS, ACCESS_KIND, counted, duration, HEALTH, said, warningText } from '../words.js';
import { CallDialog } from './call.js';
import { ConnectDialog } from './connect.js';
import { EntryDialog } from './entry.js';

/** One server with its state, its tools, and what can be done with it. @param {{ id: string }} props */
export default function Server({ id }) {
  const path = `catalogue/${encodeURIComponent(id)}`;
  const server = useLoaded(signal => ask(path, { signal }), [id]);
  useEffect(() => {
    addEventListener('server-changed', server.reload);
    return () => removeEventListener('server-changed', server.reload);
  }, [server.reload]);
  const [open, setOpen] = useState(/** @type {{ what: string, tool?: any } | undefined} */ (undefined));
  const close = () => setOpen(undefined);
  const { data } = server;
  return html`<${Screen}
    title=${data?.name ?? id}
    lead=${data?.description}
    back=${{ href: hrefOf('catalogue'), word: 'Catalogue' }}
    actions=${data && html`<${Actions} server=${data} path=${path} onOpen=${setOpen} onDone=${server.reload} />`}
  >
    <${Loaded} from=${server}>
      ${(/** @type {any} */ shown) =>
        html`${
          !shown.active &&
          html`<p class="callout warn">
              ${shown.unanswered ? 'It gave no answer for 30 days. The next successful check makes it active again.' : 'It is deactivated. Searches do not find it, and calls return 410.'}
            </p>`
        }
          <div class="columns"><${About} server=${shown} /><${Condition} server=${shown} /></div>
          <${Tools} tools=${shown.tools} source=${shown} onTry=${(/** @type {any} */ tool) => setOpen({ what: 'call', tool })} />`}
    <//>
    ${open && data && html`<${Opened} open=${open} server=${data} path=${path} onClose=${close} onDone=${server.reload} />`}
  <//>`;
}

/** @param {{ open: { what: string, tool?: any }, server: any, path: string, onClose: () => void, onDone: () => void }} props */
function Opened({ open: { what, tool }, server, path, onClose, onDone }) {
  if (what === 'call')
    return html`<${CallDialog} server=${server} tool=${tool} onClose=${onClose} onDone=${onDone} />`;
  if (what === 'edit') return html`<${EntryDialog} server=${server} onClose=${onClose} onSaved=${onDone} />`;
  if (what === 'connect')
    return html`<${ConnectDialog} server=${server} onClose=${onClose} onDone=${onDone} />`;
  return html`<${Confirm}
    title=${`Deactivate ${server.name}?`}
    verb="Deactivate"
    onClose=${onClose}
    onConfirm=${async () => {
      await ask(`${path}/deactivate`, { method: 'POST', body: {} });
      say(`Deactivated ${server.name}.`);
      onDone();
    }}
  >
    <p>Searches no longer find it, and calls to it fail. You can activate it again.</p>
  <//>`;
}

/** @param {{ server: any, path: string, onOpen: (open: { what: string, tool?: any }) => void, onDone: () => void }} props */
function Actions({ server, path, onOpen, onDone }) {
  const [isBusy, setBusy] = useState(false);
  /** @param {() => Promise<string>} work */
  const run = async work => {
    setBusy(true);
    await work().then(
      text => say(text),
      problem => say(problem.message, 'bad'),
    );
    setBusy(false);
    onDone();
  };
  const check = async () => {
    const { failing } = await ask('catalogue/probe', { method: 'POST', body: { ids: [server.id] } });
    if (failing.length > 0) throw new Error(`${server.name}: ${failing[0].reason}`);
    return `${server.name} answers.`;
  };
  const readTools = async () => {
    const { tools } = await ask(`${path}/tools`, { method: 'POST', body: {} });
    return `${server.name} lists ${counted(tools, 'tool')}.`;
  };
  const activate = async () => {
    await ask(`${path}/activate`, { method: 'POST', body: {} });
    return `${server.name} is active again.`;
  };
  if (!server.active)
    return html`<${Change} class="first" disabled=${isBusy} onClick=${() => void run(activate)}>Activate<//>`;
  const { status, kind } = server.access;
  const canConnect = kind !== 'none' && kind !== 'provider' && status !== 'setup_needed';
  return html`
    ${canConnect && html`<${Change} class=${status === 'connect' ? 'first' : ''} onClick=${() => onOpen({ what: 'connect' })}>${status === 'connected' ? 'Connect again' : 'Connect'}<//>`}
    <${Change} disabled=${isBusy} onClick=${() => void run(check)}>Check now<//>
    <${Change} disabled=${isBusy} onClick=${() => void run(readTools)}>Refresh tools<//>
    <${Change} onClick=${() => onOpen({ what: 'edit' })}>Edit<//>
    <${Change} class="danger" onClick=${() => onOpen({ what: 'deactivate' })}>Deactivate<//>
  `;
}

/** @type {Record<string, string>} */
const ORIGINS = {
  shipped: 'The shipped catalogue',
  operator: 'Added by an operator',
  registry: 'A registry',
};

/** @param {{ server: any }} props */
const About = ({ server }) =>
  html`<${Section} title="Entry">
    <${Facts}
      facts=${[
        ['Id', html`<${Copyable} text=${server.id} label="the id" />`],
        ['Address', html`<${Copyable} text=${server.remote_url} label="the address" />`],
        [
          'For a client',
          html`<${Copyable} text=${new URL(`../mcp/${server.id}`, location.href).href} label="the address for a client" />`,
        ],
        ['Transport', server.transport ?? 'Detected whenever it is called'],
        [
          'From',
          server.registry ? `${server.registry.name} at ${server.registry.source}` : ORIGINS[server.origin],
        ],
        server.categories?.length > 0 && [
          'Categories',
          html`<span class="tags">${server.categories.map((/** @type {string} */ word) => html`<${Tag} key=${word}>${word}<//>`)}</span>`,
        ],
        server.homepage && ['Homepage', html`<${Link} url=${server.homepage} />`],
        server.repository && ['Repository', html`<${Link} url=${server.repository} />`],
      ]}
    />
  <//>`;

/** A link that others wrote: only addresses of the web are followed. @param {{ url: string }} props */
const Link = ({ url }) =>
  /^https?:\/\//i.test(url)
    ? html`<a href=${url} target="_blank" rel="noopener noreferrer">${url}</a>`
    : html`<span>${url}</span>`;

/** @param {{ server: any }} props */
function Condition({ server: { access, health, auth, id } }) {
  const { learned } = access;
  return html`<${Section} title="Condition">
    <${Facts}
      facts=${[
        ['Access', html`<${State} said=${said(ACCESS, access.status)} />`],
        ['Requires', ACCESS_KIND[access.kind]],
        auth?.provider && ['Provider', auth.provider],
        learned?.issuer && ['Signs in at', html`<code>${learned.issuer}</code>`],
        access.status === 'setup_needed' && [
          'Next step',
          html`<a href=${hrefOf('setup')}>Set up its sign-in</a>`,
        ],
        ['Connections', html`<a href=${hrefOf('connections', { server_id: id })}>Show them</a>`],
        ['Health', html`<${State} said=${said(HEALTH, health?.status ?? 'unvisited')} />`],
        ...(health ? checksOf(health) : []),
      ]}
    />
  <//>`;
}

/** @param {any} health */
const checksOf = ({ status, checked_at, last_ok_at, latency_ms, failures }) => [
  ['Last check', html`<${Time} at=${checked_at} />`],
  latency_ms !== undefined && ['Took', duration(latency_ms)],
  status !== 'ok' && ['Last success', html`<${Time} at=${last_ok_at} />`],
  failures > 0 && ['Failed checks', `${failures} in a row`],
];

/** @param {{ tools: readonly any[], source: any, onTry: (tool: any) => void }} props */
const Tools = ({ tools, source, onTry }) =>
  html`<${Section}
    title=${counted(tools.length, 'tool')}
    actions=${
      source.tools_source === 'live'
        ? html`<span class="quiet">Listed by the server <${Time} at=${source.tools_listed_at} /></span>`
        : tools.length > 0 && html`<span class="quiet">From the catalogue; the server may list others</span>`
    }
  >
    ${
      tools.length === 0
        ? html`<${Empty} title="No tool is known yet.">“Refresh tools” asks the server. One that wants an account must be connected first.<//>`
        : html`<ul class="rows tool-rows">
            ${tools.map(tool => html`<${Tool} key=${tool.name} tool=${tool} onTry=${onTry} isActive=${source.active} />`)}
          </ul>`
    }
  <//>`;

/** @param {{ tool: any, onTry: (tool: any) => void, isActive: boolean }} props */
const Tool = ({ tool, onTry, isActive }) =>
  html`<li>
    <div class="between">
      <span class="tags">
        <code><strong>${tool.name}</strong></code>
        ${tool.annotations?.readOnlyHint && html`<${Tag} tone="good" title="Its server says that it changes nothing.">Read-only<//>`}
        ${tool.annotations?.destructiveHint && html`<${Tag} tone="warn" title="Its server says that it may delete or overwrite data.">Destructive<//>`}
        ${(tool.warnings ?? []).map((/** @type {string} */ text) => html`<${Tag} key=${text} tone="warn">${warningText(text)}<//>`)}
      </span>
      <${Change} class="small" disabled=${!isActive} onClick=${() => onTry(tool)}>Try<span class="unseen"> ${tool.name}</span><//>
    </div>
    <p class="quiet">${tool.description}</p>
    <details>
      <summary>Arguments<span class="unseen"> of ${tool.name}</span></summary>
      <pre tabindex="0">${JSON.stringify(tool.input_schema, null, 2)}</pre>
    </details>
  </li>`;
