import { useEffect, useState } from 'preact/hooks';
import { Check, Dialog, Field, Form } from '../dialog.js';
import { ask, html, say, useLoaded } from '../lib.js';
import { Loaded, Trouble } from '../parts.js';
import { counted } from '../words.js';

/**
 * Connects a server for a tenant: by a sign-in in another window, or by its key.
 * @param {{ server: { id: string, name: string, access: { kind: string } }, onClose: () => void, onDone: () => void }} props
 */
export function ConnectDialog({ server, onClose, onDone }) {
  const [begun, setBegun] = useState(
    /** @type {any} */ (server.access.kind === 'credentials' ? { kind: 'credentials' } : undefined),
  );
  /** @param {Record<string, string>} fields */
  const begin = async ({ tenant = '', for_users }) => {
    const holder = { ...(tenant === '' ? {} : { tenant }), for_users: for_users === 'on' };
    const session = await ask('connections/session', {
      method: 'POST',
      body: { server_id: server.id, ...holder },
    });
    setBegun({ ...session, ...holder });
  };
  const common = { server, onClose, onDone };
  return html`<${Dialog} title=${`Connect ${server.name}`} onClose=${onClose}>
    ${begun === undefined && html`<${Form} verb="Continue" onClose=${onClose} onSend=${begin}><${Holder} /><//>`}
    ${begun?.kind === 'oauth' && html`<${SignInThere} ...${common} session=${begun} />`}
    ${begun?.kind === 'credentials' && html`<${KeyForm} ...${common} holder=${begun} />`}
  <//>`;
}

/** Asks for whom the connection is. @param {{ tenant?: string, for_users?: boolean }} props */
const Holder = ({ tenant, for_users }) =>
  html`<${Field} name="tenant" label="Tenant" isOptional placeholder="local" defaultValue=${tenant} />
    <${Check} name="for_users" label="Users without a connection of their own use it, too" isOn=${for_users} />`;

const POLL_MS = 2_000;

/** Waits while somebody signs in with the server. @param {{ session: { session_id: string, auth_url: string, tenant?: string }, onClose: () => void, onDone: () => void }} props */
function SignInThere({ session: { session_id, auth_url, tenant }, onClose, onDone }) {
  const [problem, setProblem] = useState(/** @type {Error | undefined} */ (undefined));
  useEffect(() => {
    const timer = setInterval(() => {
      void ask('connections/session', { query: { session_id, tenant } }).then(
        ({ status, error }) => {
          if (status === 'pending') return;
          clearInterval(timer);
          if (status === 'error') return setProblem(new Error(`The sign-in failed: ${error}.`));
          say('Connected.');
          onDone();
          onClose();
        },
        failed => {
          if (failed.status === 0) return;
          clearInterval(timer);
          setProblem(failed);
        },
      );
    }, POLL_MS);
    return () => clearInterval(timer);
  }, [session_id]);
  return html`<p>Sign in with the server in another tab. All calls of the tenant that act for no user then go through that account.</p>
    <${Trouble} problem=${problem} />
    <div class="buttons">
      <button type="button" onClick=${onClose}>Cancel</button>
      <a class="button first" href=${auth_url} target="_blank" rel="noopener noreferrer">Open the sign-in</a>
    </div>`;
}

/** Takes the key that a server wants. @param {{ server: { id: string, name: string }, holder: { tenant?: string, for_users?: boolean }, onClose: () => void, onDone: () => void }} props */
function KeyForm({ server, holder, onClose, onDone }) {
  const form = useLoaded(
    signal => ask('connections/form', { query: { server_id: server.id }, signal }),
    [server.id],
  );
  /** @param {Record<string, string>} fields */
  const store = async ({ header = '', tenant = '', for_users, ...values }) => {
    const { tools, problem } = await ask('connections', {
      method: 'PUT',
      body: {
        server_id: server.id,
        values: Object.fromEntries(
          Object.entries(values).flatMap(([name, value]) =>
            value === '' ? [] : [[name.replace(/^value\./, ''), value]],
          ),
        ),
        ...(header === '' ? {} : { header }),
        ...(tenant === '' ? {} : { tenant }),
        for_users: for_users === 'on',
      },
    });
    if (problem) say(`Stored the key of ${server.name}, but it could not be tried: ${problem}`, 'bad');
    else say(`Stored the key of ${server.name}, which lists ${counted(tools ?? 0, 'tool')}.`);
    onDone();
    onClose();
  };
  return html`<${Loaded} from=${form}>
    ${(/** @type {any} */ { host, key_url, fields, takes_header }) =>
      html`<${Form} verb="Store" onClose=${onClose} onSend=${store}>
        <p>
          The key is encrypted, sent only to <code>${host}</code>, and never shown again.
          ${key_url && html` <a href=${key_url} target="_blank" rel="noopener noreferrer">Get a key</a>`}
        </p>
        ${fields.map(
          (/** @type {any} */ field) =>
            html`<${Field}
              key=${field.name}
              name=${`value.${field.name}`}
              label=${field.name}
              help=${field.description}
              isOptional=${!field.is_required}
              type=${field.is_secret ? 'password' : 'text'}
              autocomplete=${field.is_secret ? 'new-password' : 'off'}
              defaultValue=${field.default}
              control=${
                field.choices &&
                ((/** @type {any} */ joined) =>
                  html`<select ...${joined}>
                    ${field.choices.map((/** @type {string} */ value) => html`<option value=${value} selected=${value === field.default}>${value}</option>`)}
                  </select>`)
              }
            />`,
        )}
        ${takes_header && html`<${Field} name="header" label="Header" isOptional placeholder="Authorization" help="The header that carries the key." />`}
        <${Holder} ...${holder} />
      <//>`}
  <//>`;
}
