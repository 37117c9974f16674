import { useState } from 'preact/hooks';
import { Change, Dialog, Field, Form } from '../dialog.js';
import { ask, hrefOf, html, place, say, useLoaded } from '../lib.js';
import { Empty, Filters, Loaded, Named, Pager, Table, TextFilter, Time } from '../parts.js';

const LIMIT = 50;

/** The ways to complete a sign-in. @type {Record<string, string>} */
const MODES = {
  direct: 'At the provider; the user may undo it afterwards',
  page: 'On a page that asks the user first',
  caller: 'By the app, with a code',
};

/** The claims that can be the id of a user who signs in to the page of connections. @type {Record<string, string>} */
const CLAIMS = { email: 'The verified e-mail address', sub: 'The id at the provider' };

export function Tenants() {
  const { filters } = place.value;
  const tenants = useLoaded(
    signal => ask('tenants', { query: { ...filters, limit: LIMIT }, signal }),
    [JSON.stringify(filters)],
  );
  const [edited, setEdited] = useState(/** @type {any} */ (undefined));
  return html`<${Filters}><${TextFilter} name="q" label="Text" placeholder="Id or name" isMain /><//>
    <${Loaded} from=${tenants}>
      ${(/** @type {any} */ { tenants: rows, next_cursor }) =>
        rows.length === 0
          ? html`<${Empty} title="No tenant matches.">A tenant is created with its first key.<//>`
          : html`<${Table}
                caption="Tenants"
                rows=${rows}
                keyOf=${(/** @type {any} */ one) => one.id}
                columns=${[
                  {
                    head: 'Tenant',
                    cell: (/** @type {any} */ { id, name }) =>
                      html`<${Named} name=${name ?? 'No name'} id=${id} />`,
                  },
                  {
                    head: 'Sign-ins are completed',
                    cell: (/** @type {any} */ { mode }) => MODES[mode] ?? mode,
                  },
                  {
                    head: 'Return addresses',
                    cell: (/** @type {any} */ { return_urls }) =>
                      return_urls.length === 0
                        ? html`<span class="quiet">none</span>`
                        : return_urls.map(
                            (/** @type {string} */ url) => html`<code key=${url}>${url}</code> `,
                          ),
                  },
                  {
                    head: 'Created',
                    class: 'line',
                    cell: (/** @type {any} */ { created_at }) => html`<${Time} at=${created_at} />`,
                  },
                  {
                    head: '',
                    class: 'end',
                    cell: (/** @type {any} */ one) =>
                      html`<span class="row-actions">
                        <a class="button small" href=${hrefOf('keys', { tenant: one.id })}>Keys<span class="unseen"> of ${one.id}</span></a>
                        <a class="button small" href=${hrefOf('connections', { tenant: one.id })}>Connections<span class="unseen"> of ${one.id}</span></a>
                        <${Change} class="small" onClick=${() => setEdited(one)}>Edit<span class="unseen"> ${one.id}</span><//>
                      </span>`,
                  },
                ]}
              />
              <${Pager} next=${next_cursor} shown=${rows.length} one="tenant" />`}
    <//>
    ${edited && html`<${TenantDialog} tenant=${edited} onClose=${() => setEdited(undefined)} onDone=${tenants.reload} />`}`;
}

/** @param {{ tenant: any, onClose: () => void, onDone: () => void }} props */
const TenantDialog = ({ tenant, onClose, onDone }) =>
  html`<${Dialog} title=${`Edit tenant ${tenant.id}`} onClose=${onClose}>
    <${Form}
      verb="Save"
      onClose=${onClose}
      onSend=${async (
        /** @type {Record<string, string>} */ { name, mode, return_urls = '', provider, user_id, domain },
      ) => {
        const urls = return_urls.split('\n').map(url => url.trim());
        await ask(`tenants/${encodeURIComponent(tenant.id)}`, {
          method: 'POST',
          body: {
            name,
            mode,
            return_urls: urls.filter(url => url !== ''),
            sign_in: provider ? { provider, user_id, ...(domain ? { domain } : {}) } : null,
          },
        });
        say(`Saved tenant ${tenant.id}.`);
        onDone();
        onClose();
      }}
    >
      <${Field} name="name" label="Name" isOptional maxlength="100" help="Users see it as the name of the app." defaultValue=${tenant.name ?? ''} />
      <${Field}
        name="mode"
        label="Sign-ins are completed"
        control=${(/** @type {any} */ joined) =>
          html`<select ...${joined}>
            ${Object.entries(MODES).map(([value, words]) => html`<option value=${value} selected=${value === tenant.mode}>${words}</option>`)}
          </select>`}
      />
      <${Field}
        name="return_urls"
        label="Return addresses"
        isOptional
        help="One a line. The result page may link back to them."
        control=${(/** @type {any} */ joined) =>
          html`<textarea class="code" rows="4" spellcheck=${false} defaultValue=${tenant.return_urls.join('\n')} ...${joined}></textarea>`}
      />
      <div class="pair">
        <${Field}
          name="provider"
          label="Users sign in with"
          isOptional
          maxlength="64"
          help="The name of an OpenID provider. Without one, they need a link."
          defaultValue=${tenant.sign_in?.provider}
        />
        <${Field}
          name="user_id"
          label="Their id is"
          control=${(/** @type {any} */ joined) =>
            html`<select ...${joined}>
              ${Object.entries(CLAIMS).map(([value, words]) => html`<option value=${value} selected=${value === tenant.sign_in?.user_id}>${words}</option>`)}
            </select>`}
        />
      </div>
      <${Field}
        name="domain"
        label="Let in everybody with an address at"
        isOptional
        maxlength="253"
        help="A domain, if their id is the verified address. Otherwise only users who are known can sign in."
        defaultValue=${tenant.sign_in?.domain}
      />
    <//>
  <//>`;
