import { useState } from 'preact/hooks';
import { Check, Confirm, Dialog, Field, Form } from '../dialog.js';
import { ask, html, say, useLoaded } from '../lib.js';
import { Copyable, Facts } from '../parts.js';

const MAX_SERVERS = 10;
const TYPING_MS = 250;

/**
 * Enters the client of an OAuth app that somebody has created at an authorization server.
 * @param {{ app: { issuer?: string, redirect_uri?: string, client_id?: string, servers?: readonly string[] | number, allowed_origins?: readonly string[], has_secret?: boolean, token_auth_method?: string | null, scopes?: readonly string[] }, onClose: () => void, onDone: () => void }} props app: empty for one that is not known yet
 */
export function AppDialog({ app, onClose, onDone }) {
  const ids = Array.isArray(app.servers) ? app.servers : [];
  const origins = useLoaded(signal => originsOf(ids, signal), [ids.join(' ')]);
  const offered = [...new Set([...(app.allowed_origins ?? []), ...(origins.data ?? [])])];
  /** @param {Record<string, string>} fields @param {HTMLFormElement} form */
  const store = async ({ issuer = app.issuer, client_id, client_secret, allowed_origins = '' }, form) => {
    const checked = new FormData(form).getAll('origin').map(String);
    const typed = allowed_origins.split(/\s+/).filter(origin => origin !== '');
    const { redirect_uri } = await ask('setup/oauth-clients', {
      method: 'PUT',
      body: {
        issuer,
        client_id,
        ...(client_secret ? { client_secret } : {}),
        token_auth_method: app.token_auth_method,
        scopes: app.scopes,
        allowed_origins: [...new Set([...checked, ...typed])],
      },
    });
    say(
      app.redirect_uri === redirect_uri
        ? `Stored the app for ${issuer}.`
        : `Stored the app for ${issuer}. Its redirect URI must be ${redirect_uri}.`,
    );
    onDone();
    onClose();
  };
  return html`<${Dialog} title="Enter an OAuth app" onClose=${onClose}>
    <${Form} verb="Store" onClose=${onClose} onSend=${store}>
      ${
        app.issuer
          ? html`<${Facts}
              facts=${[
                ['Create it at', html`<code>${app.issuer}</code>`],
                ['Redirect URI', html`<${Copyable} text=${app.redirect_uri} label="the redirect URI" />`],
              ]}
            />`
          : html`<${NewIssuer} />`
      }
      <${Field} name="client_id" label="Client ID" defaultValue=${app.client_id} />
      <${Field}
        name="client_secret"
        label="Client secret"
        type="password"
        autocomplete="new-password"
        isOptional
        help=${`It is encrypted and never shown again. ${app.has_secret ? 'Leave it empty to keep the stored one, unless the client ID changes.' : 'A public client has none.'}`}
      />
      <fieldset>
        <legend>Servers of other domains that receive its tokens</legend>
        <p class="help">A server in the domain of the authorization server needs no permission. Allow others only if you trust them.</p>
        ${offered.map(
          origin =>
            html`<${Check} key=${origin} name="origin" value=${origin} label=${origin} isOn=${app.allowed_origins?.includes(origin)} />`,
        )}
      </fieldset>
      <${Field} name="allowed_origins" label="Other origins" isOptional placeholder="https://mcp.example.com" />
    <//>
  <//>`;
}

/** Asks for the authorization server of an app, and shows the redirect URI to create the app with. */
function NewIssuer() {
  const [issuer, setIssuer] = useState('');
  const found = useLoaded(
    async signal => {
      await new Promise(resolve => setTimeout(resolve, TYPING_MS));
      if (!URL.canParse(issuer) || signal.aborted) return undefined;
      const { redirect_uri, oauth_clients } = await ask('setup', { query: { issuer }, signal });
      const stored = oauth_clients.find((/** @type {any} */ one) => one.issuer === issuer);
      return { issuer, redirect_uri, stored };
    },
    [issuer],
  );
  return html`<div class="fields">
    <${Field}
      name="issuer"
      label="Authorization server"
      type="url"
      placeholder="https://auth.example.com"
      help="Its issuer, exactly as its metadata writes it. The redirect URI depends on it."
      onInput=${(/** @type {InputEvent & { currentTarget: HTMLInputElement }} */ event) => setIssuer(event.currentTarget.value.trim())}
    />
    ${
      found.data?.issuer === issuer &&
      html`<${Facts}
        facts=${[['Redirect URI', html`<${Copyable} text=${found.data.redirect_uri} label="the redirect URI" />`]]}
      />`
    }
    ${
      found.data?.issuer === issuer &&
      found.data.stored &&
      html`<p class="warn" role="status">
        The app ${found.data.stored.client_id} is in use for it. Storing another one replaces it.
      </p>`
    }
  </div>`;
}

/** Returns the origins of servers, of which the operator may let some have the tokens. @param {readonly string[]} ids @param {AbortSignal} signal */
async function originsOf(ids, signal) {
  const servers = await Promise.all(
    ids.slice(0, MAX_SERVERS).map(id => ask(`catalogue/${encodeURIComponent(id)}`, { signal })),
  );
  return [...new Set(servers.map(({ remote_url }) => new URL(remote_url).origin))];
}

/** @param {{ app: { issuer: string }, onClose: () => void, onDone: () => void }} props */
export const RemoveApp = ({ app, onClose, onDone }) =>
  html`<${Confirm}
    title="Remove this OAuth app?"
    verb="Remove"
    onClose=${onClose}
    onConfirm=${async () => {
      await ask('setup/oauth-clients/remove', { method: 'POST', body: { issuer: app.issuer } });
      say(`Removed the app for ${app.issuer}.`);
      onDone();
    }}
  >
    <p>New sign-ins at <code>${app.issuer}</code> fail until another app is entered, unless the server lets clients register themselves.</p>
  <//>`;
