import type { CredentialField } from '../../core/catalogue/credential-schema.ts';
import type { ServerForm } from '../../core/identity/connections/server-connections.ts';
import type { LinkView } from '../../core/identity/sign-in/sign-in-view.ts';
import type { Fields } from './page-router.ts';
import {
  factsOf,
  html,
  named,
  pageButton,
  placeOf,
  requestOf,
  visible,
  type Html,
  type Page,
} from './page.ts';

const VALUE = 'value.';
const HEADER = 'header';

/** How the form of a page is sent. */
export interface Sent {
  readonly action: string;
  /** Proves that it came from the page. */
  readonly token: string;
  /** The page of connections, for a user who comes from there. */
  readonly back: string;
  /** Why what was sent last was not taken. */
  readonly problem?: string;
}

interface FormPage extends Sent {
  readonly view: LinkView;
  readonly form: ServerForm;
}

/** The page on which a user enters what a server takes. Values are never shown again, not even wrong ones. */
export function serverFormPage({ view, form, action, token, back, problem }: FormPage): Page {
  const { server, fields, takesHeader } = form;
  const { key_url: keyUrl } = server.auth;
  return {
    ...(problem === undefined ? {} : { status: 400 }),
    title: 'Enter a key',
    // Browsers apply this to the redirect after the form, too.
    formTargets: view.appOrigin === undefined ? [] : [view.appOrigin],
    heading: html`Connect ${named(server.name)}`,
    body: html` ${problem !== undefined && html`<p role="alert" class="warn">${problem}</p>`}
      <p>${requestOf(view)} ${named(server.name)}, with a key of yours.</p>
      ${factsOf(
        view,
        html`<dt>Its address</dt>
          <dd>${named(new URL(server.remoteUrl).host)}</dd>`,
      )}
      ${
        keyUrl !== undefined &&
        html`<p>
          <a class="button second" href="${keyUrl}" rel="noreferrer" target="_blank"
            >Get a key at ${named(new URL(keyUrl).host)}</a
          >
        </p>`
      }
      <form method="post" action="${action}" autocomplete="off">
        <input type="hidden" name="token" value="${token}" />
        ${fields.map(input)}
        ${
          takesHeader &&
          html`<details>
            <summary>Send the key in another header</summary>
            <label for="${HEADER}">Name of the header</label>
            <input id="${HEADER}" name="${HEADER}" placeholder="Authorization" spellcheck="false" />
          </details>`
        }
        <p class="note">
          Go on only if you began this yourself, ${placeOf(view)}. The key is stored encrypted, and sent to
          ${named(new URL(server.remoteUrl).host)} and nowhere else.
        </p>
        <div class="buttons"><button>Connect</button>${view.isOfPage && pageButton(back)}</div>
      </form>`,
  };
}

function input({
  name,
  description,
  isRequired,
  isSecret,
  choices,
  placeholder,
  ...field
}: CredentialField): Html {
  const id = `${VALUE}${name}`;
  const required = isRequired && field.default === undefined;
  return html`<label for="${id}"
      >${name === 'token' ? 'Key or token' : named(name)}${!required && html` (optional)`}</label
    >
    ${description !== undefined && html`<p id="${id}.help" class="help">${named(description)}</p>`}
    ${
      choices
        ? html`<select id="${id}" name="${id}">
            ${!required && html`<option value="">Not set</option>`}
            ${choices.map(
              choice =>
                html`<option value="${choice}" ${choice === field.default && ATTRIBUTES.selected}>
                  ${visible(choice)}
                </option>`,
            )}
          </select>`
        : html`<input
            id="${id}"
            name="${id}"
            type="${isSecret ? 'password' : 'text'}"
            autocomplete="off"
            spellcheck="false"
            placeholder="${placeholder ?? field.default ?? ''}"
            ${required && ATTRIBUTES.required}
            ${description !== undefined && html`aria-describedby="${id}.help"`}
          />`
    }`;
}

const ATTRIBUTES = { selected: html`selected`, required: html`required` };

/** Returns what a form of that page holds. An empty header is none. */
export function readServerForm(fields: Fields) {
  const values = Object.entries(fields).flatMap(([name, value]) =>
    name.startsWith(VALUE) && value !== undefined ? [[name.slice(VALUE.length), value] as const] : [],
  );
  const header = fields[HEADER]?.trim();
  return {
    values: Object.fromEntries(values),
    ...(header === undefined || header === '' ? {} : { header }),
  };
}
