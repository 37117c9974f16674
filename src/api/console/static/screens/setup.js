import { useState } from 'preact/hooks';
import { Change } from '../dialog.js';
import { ask, hrefOf, html, useLoaded } from '../lib.js';
import { Copyable, Empty, Facts, Loaded, Named, Screen, Section, State, Table, Time } from '../parts.js';
import { counted, number } from '../words.js';
import { ConnectDialog } from './connect.js';
import { AppDialog, RemoveApp } from './oauth-app.js';

const KEYS_LIMIT = 20;

export default function Setup() {
  const setup = useLoaded(signal => ask('setup', { signal }), []);
  const [asked, setAsked] = useState(
    /** @type {{ what: 'enter' | 'remove', app: any } | undefined} */ (undefined),
  );
  const close = () => setAsked(undefined);
  return html`<${Screen} title="Setup" lead="What servers and sign-ins need from you before users can connect.">
    <${Loaded} from=${setup}>
      ${(/** @type {any} */ data) =>
        html`<${Needed} needed=${data.oauth_needed} onAsk=${setAsked} />
          <${Apps} clients=${data.oauth_clients} onAsk=${setAsked} />
          <${Providers} setup=${data} />
          <${WantedKeys} />
          <${Addresses} setup=${data} />`}
    <//>
    ${asked?.what === 'enter' && html`<${AppDialog} app=${asked.app} onClose=${close} onDone=${setup.reload} />`}
    ${asked?.what === 'remove' && html`<${RemoveApp} app=${asked.app} onClose=${close} onDone=${setup.reload} />`}
  <//>`;
}

/** Authorization servers at which nobody has registered Switchboard. @param {{ needed: readonly any[], onAsk: (asked: any) => void }} props */
const Needed = ({ needed, onAsk }) =>
  html`<${Section}
    title="OAuth apps to create"
    note=${needed.length > 0 && 'These authorization servers let no client register itself. Create an app there with this redirect URI, then enter its client.'}
  >
    ${
      needed.length === 0
        ? html`<${Empty} title="No app is missing.">Servers that want one appear here after their first sign-in or call.<//>`
        : html`<${Table}
            caption="OAuth apps to create"
            rows=${needed}
            keyOf=${(/** @type {any} */ one) => one.issuer}
            columns=${[
              {
                head: 'Authorization server',
                cell: (/** @type {any} */ one) => html`<code>${one.issuer}</code>`,
              },
              {
                head: 'Redirect URI',
                cell: (/** @type {any} */ one) =>
                  html`<${Copyable} text=${one.redirect_uri} label=${`the redirect URI for ${one.issuer}`} />`,
              },
              {
                head: 'For',
                cell: (/** @type {any} */ { servers, count }) =>
                  html`<${ServerLinks} ids=${servers} count=${count} />`,
              },
              {
                head: '',
                class: 'end',
                cell: (/** @type {any} */ one) =>
                  html`<${Change} class="small" onClick=${() => onAsk({ what: 'enter', app: one })}>Enter app<span class="unseen"> for ${one.issuer}</span><//>`,
              },
            ]}
          />`
    }
  <//>`;

const SHOWN_IDS = 3;

/** @param {{ ids: readonly string[], count: number }} props */
const ServerLinks = ({ ids, count }) =>
  html`<span
    >${ids.slice(0, SHOWN_IDS).map((id, at) => html`${at > 0 && ', '}<a key=${id} href=${hrefOf(['catalogue', id])}>${id}</a>`)}${
      count > SHOWN_IDS && ` and ${number(count - Math.min(ids.length, SHOWN_IDS))} more`
    }</span
  >`;

/** @type {Record<string, import('../words.js').Said>} */
const SOURCES = {
  setting: { word: 'From the settings', tone: 'good' },
  entered: { word: 'Entered here', tone: 'good' },
  registered: { word: 'Registered by itself', tone: 'info' },
};

/** @param {{ clients: readonly any[], onAsk: (asked: any) => void }} props */
const Apps = ({ clients, onAsk }) =>
  html`<${Section}
    title="OAuth apps"
    actions=${html`<${Change} class="small" onClick=${() => onAsk({ what: 'enter', app: {} })}>Enter an app<//>`}
    note=${clients.length > 0 && html`An app serves all servers that sign users in at its authorization server. Switchboard learns where that is from the first call or sign-in, unless the entry of the server names it (<code>auth.issuer</code>).`}
  >
    ${
      clients.length === 0
        ? html`<${Empty} title="No OAuth app yet.">Switchboard registers itself at the first sign-in, where the authorization server allows it.<//>`
        : html`<${Table}
            caption="OAuth apps"
            rows=${clients}
            keyOf=${(/** @type {any} */ one) => `${one.issuer} ${one.client_id}`}
            columns=${[
              {
                head: 'Authorization server',
                cell: (/** @type {any} */ one) => html`<${Named} name=${one.issuer} id=${one.client_id} />`,
              },
              {
                head: 'Redirect URI',
                cell: (/** @type {any} */ one) =>
                  html`<${Copyable} text=${one.redirect_uri} label=${`the redirect URI for ${one.issuer}`} />`,
              },
              {
                head: 'Origin',
                cell: (/** @type {any} */ one) =>
                  html`<span class="named"><${State} said=${SOURCES[one.source]} />${one.created_at && html`<small class="quiet"><${Time} at=${one.created_at} /></small>`}</span>`,
              },
              { head: 'Servers', class: 'num', cell: (/** @type {any} */ one) => number(one.servers) },
              {
                head: '',
                class: 'end',
                cell: (/** @type {any} */ one) =>
                  one.source === 'entered' &&
                  html`<span class="row-actions">
                    <${Change} class="small" onClick=${() => onAsk({ what: 'enter', app: one })}>Replace<span class="unseen"> ${one.issuer}</span><//>
                    <${Change} class="small danger" onClick=${() => onAsk({ what: 'remove', app: one })}>Remove<span class="unseen"> ${one.issuer}</span><//>
                  </span>`,
              },
            ]}
          />`
    }
  <//>`;

/** @param {{ setup: any }} props */
const Providers = ({ setup: { providers, providers_missing, origins_missing, settings } }) =>
  html`<${Section}
    title="Identity providers"
    note=${html`Providers are configured with the setting <code>${settings.providers}</code>.`}
  >
    ${providers_missing.map(
      (/** @type {any} */ { name, servers, count }) =>
        html`<p key=${name} class="callout warn">
          <span><strong>${name}</strong> is not configured, but ${counted(count, 'server')} ${count === 1 ? 'wants' : 'want'} its tokens: <${ServerLinks} ids=${servers} count=${count} />.</span>
        </p>`,
    )}
    ${origins_missing.map(
      (/** @type {any} */ { provider, origin, servers, count }) =>
        html`<p key=${`${provider} ${origin}`} class="callout warn">
          <span
            ><code>${origin}</code> is not among the allowed_origins of <strong>${provider}</strong>, so its tokens are not sent
            to <${ServerLinks} ids=${servers} count=${count} />.</span
          >
        </p>`,
    )}
    ${
      providers.length > 0 &&
      html`<${Table}
        caption="Identity providers"
        rows=${providers}
        keyOf=${(/** @type {any} */ one) => one.name}
        columns=${[
          {
            head: 'Provider',
            cell: (/** @type {any} */ one) => html`<${Named} name=${one.title} id=${one.name} />`,
          },
          {
            head: 'State',
            cell: (/** @type {any} */ one) =>
              html`<${State} said=${one.is_configured ? { word: 'Configured', tone: 'good' } : { word: 'No client', tone: 'quiet' }} />`,
          },
          {
            head: 'Redirect URI',
            cell: (/** @type {any} */ one) =>
              html`<${Copyable} text=${one.redirect_uri} label=${`the redirect URI for ${one.title}`} />`,
          },
          {
            head: 'Tokens go to',
            cell: (/** @type {any} */ one) =>
              one.allowed_origins.length === 0
                ? html`<span class="quiet">no server yet</span>`
                : one.allowed_origins.map(
                    (/** @type {string} */ origin) => html`<code key=${origin}>${origin}</code> `,
                  ),
          },
          { head: 'Servers', class: 'num', cell: (/** @type {any} */ one) => number(one.servers) },
        ]}
      />`
    }
  <//>`;

/** Servers that want a key which nobody has entered for the tenant. */
function WantedKeys() {
  const query = { access_kind: 'credentials', access_status: 'connect', limit: KEYS_LIMIT };
  const servers = useLoaded(signal => ask('catalogue', { query, signal }), []);
  const [server, setServer] = useState(/** @type {any} */ (undefined));
  return html`<${Section} title="Keys that servers want" note="A key that you enter is shared by all calls of your tenant that act for no user.">
    <${Loaded} from=${servers}>
      ${(/** @type {any} */ { servers: rows, total }) =>
        rows.length === 0
          ? html`<${Empty} title="No server waits for a key." />`
          : html`<${Table}
                caption="Servers that want a key"
                rows=${rows}
                keyOf=${(/** @type {any} */ one) => one.id}
                columns=${[
                  {
                    head: 'Server',
                    cell: (/** @type {any} */ one) =>
                      html`<${Named} href=${hrefOf(['catalogue', one.id])} name=${one.name} id=${one.id} />`,
                  },
                  {
                    head: 'What it does',
                    cell: (/** @type {any} */ one) => html`<span class="clip">${one.description}</span>`,
                  },
                  {
                    head: '',
                    class: 'end',
                    cell: (/** @type {any} */ one) =>
                      html`<${Change} class="small" onClick=${() => setServer(one)}>Enter a key<span class="unseen"> for ${one.name}</span><//>`,
                  },
                ]}
              />
              ${
                total > rows.length &&
                html`<p>
                  <a href=${hrefOf('catalogue', { access_kind: query.access_kind, access_status: query.access_status })}>All ${number(total)} servers that want a key</a>
                </p>`
              }`}
    <//>
    ${server && html`<${ConnectDialog} server=${server} onClose=${() => setServer(undefined)} onDone=${servers.reload} />`}
  <//>`;
}

/** @param {{ setup: any }} props */
const Addresses = ({ setup: { public_url, return_url, client_metadata_url, settings } }) =>
  html`<${Section} title="Addresses of this Switchboard" note=${html`They follow from the setting <code>${settings.public_url}</code>.`}>
    <${Facts}
      facts=${[
        ['Public address', html`<${Copyable} text=${public_url} label="the public address" />`],
        [
          'For agents (MCP)',
          html`<${Copyable} text=${`${public_url}/mcp`} label="the address for agents" />`,
        ],
        [
          'Shared redirect URI',
          html`<${Copyable} text=${return_url} label="the shared redirect URI" />
            <p class="help">
              Only for authorization servers that know Switchboard by its client metadata. An app that you create has a redirect URI
              of its own.
            </p>`,
        ],
        client_metadata_url && [
          'Client metadata',
          html`<${Copyable} text=${client_metadata_url} label="the address of the client metadata" />`,
        ],
      ]}
    />
  <//>`;
