import { useState } from 'preact/hooks';
import { Check, Dialog, Field, Form } from '../dialog.js';
import { ask, html, isOwnKey, say } from '../lib.js';
import { Copyable } from '../parts.js';

/** @type {readonly (readonly [scope: string, help: string])[]} */
const SCOPES = [
  ['search', 'find servers and tools'],
  ['proxy', 'call servers'],
  ['identity', 'sign users in and connect their accounts'],
  ['admin_read', 'see everything in this console'],
  ['admin', 'change everything in this console'],
];
const USUAL = new Set(['search', 'proxy', 'identity']);
/** A key of a user takes no others. */
const OF_A_USER = new Set(['search', 'proxy']);

const KEEP = 'The key is lost if you leave now. Copy it, then choose “I have copied it”.';

/** Shows a new key, for the only time. @param {{ made: any, onClose: () => void }} props */
const NewKey = ({ made, onClose }) =>
  html`<div role="status">
    <p>This is the key of <strong>${made.name}</strong>. Copy it now: it is never shown again.</p>
    <p class="new-key"><${Copyable} text=${made.key} label="the key" /></p>
    <div class="buttons"><button type="button" class="first" onClick=${onClose}>I have copied it</button></div>
  </div>`;

/** @param {{ onClose: () => void, onDone: () => void }} props */
export function CreateDialog({ onClose, onDone }) {
  const [made, setMade] = useState(/** @type {any} */ (undefined));
  /** @param {Record<string, string>} fields @param {HTMLFormElement} form */
  const create = async ({ name, tenant, user_id, expires_at, calls, searches }, form) => {
    const checked = new FormData(form).getAll('scope').map(String);
    const scopes = user_id ? checked.filter(scope => OF_A_USER.has(scope)) : checked;
    setMade(
      await ask('keys', {
        method: 'POST',
        body: {
          name,
          scopes,
          ...(tenant ? { tenant } : {}),
          ...(user_id ? { user_id } : {}),
          ...(expires_at ? { expires_at: new Date(`${expires_at}T23:59:59`).toISOString() } : {}),
          ...quotaOf(calls, searches),
        },
      }),
    );
    onDone();
  };
  return html`<${Dialog} title=${made ? 'The key was created' : 'Create a key'} onClose=${onClose} keep=${made ? KEEP : undefined}>
    ${
      made
        ? html`<${NewKey} made=${made} onClose=${onClose} />`
        : html`<${Form} verb="Create" onClose=${onClose} onSend=${create}>
            <${Field} name="name" label="Name" maxlength="200" placeholder="The app that uses it" />
            <fieldset name="scopes">
              <legend>It may</legend>
              ${SCOPES.map(
                ([scope, help]) =>
                  html`<${Check} key=${scope} name="scope" value=${scope} label=${scope} help=${help} isOn=${USUAL.has(scope)} />`,
              )}
            </fieldset>
            <div class="pair">
              <${Field} name="calls" label="Calls per month" type="number" min="1" isOptional placeholder="No limit" />
              <${Field} name="searches" label="Searches per month" type="number" min="1" isOptional placeholder="No limit" />
            </div>
            <div class="pair">
              <${Field} name="tenant" label="Tenant" isOptional placeholder="local" help="A tenant that does not exist is created. Admin keys belong to local." />
              <${Field} name="expires_at" label="Expires at the end of" type="date" isOptional />
            </div>
            <${Field}
              name="user_id"
              label="Acts for the user"
              isOptional
              help="Your app's id for the user. The key then needs no identity token, and takes search and proxy only."
            />
          <//>`
    }
  <//>`;
}

/** @param {string | undefined} calls @param {string | undefined} searches */
const quotaOf = (calls, searches) =>
  calls || searches
    ? {
        monthly_quota: {
          ...(calls ? { calls: Number(calls) } : {}),
          ...(searches ? { searches: Number(searches) } : {}),
        },
      }
    : {};

/** @param {{ one: any, onClose: () => void, onDone: () => void }} props */
export const EditDialog = ({ one, onClose, onDone }) =>
  html`<${Dialog} title=${`Edit ${one.name}`} onClose=${onClose}>
    <${Form}
      verb="Save"
      onClose=${onClose}
      onSend=${async (/** @type {Record<string, string>} */ { name, calls, searches }) => {
        const monthly_quota = {
          calls: calls ? Number(calls) : null,
          searches: searches ? Number(searches) : null,
        };
        await ask(`keys/${encodeURIComponent(one.id)}`, { method: 'POST', body: { name, monthly_quota } });
        say(`Saved ${name}.`);
        onDone();
        onClose();
      }}
    >
      <${Field} name="name" label="Name" maxlength="200" defaultValue=${one.name} />
      <div class="pair">
        <${Field}
          name="calls"
          label="Calls per month"
          type="number"
          min="1"
          isOptional
          placeholder="No limit"
          defaultValue=${one.monthly_quota.calls ?? ''}
        />
        <${Field}
          name="searches"
          label="Searches per month"
          type="number"
          min="1"
          isOptional
          placeholder="No limit"
          defaultValue=${one.monthly_quota.searches ?? ''}
        />
      </div>
    <//>
  <//>`;

const HOUR_SEC = 3_600;
/** @type {readonly (readonly [seconds: number, words: string])[]} */
const OVERLAPS = [
  [0, 'at once'],
  [HOUR_SEC, 'in an hour'],
  [24 * HOUR_SEC, 'in a day'],
  [7 * 24 * HOUR_SEC, 'in a week'],
];

/** @param {{ one: any, onClose: () => void, onDone: () => void }} props */
export function RotateDialog({ one, onClose, onDone }) {
  const [made, setMade] = useState(/** @type {any} */ (undefined));
  // The list is loaded last: without the old key it leads to the sign-in, and the new key would be lost.
  const close = () => {
    onClose();
    if (made) onDone();
  };
  return html`<${Dialog} title=${made ? 'The key was rotated' : `Rotate ${one.name}?`} onClose=${close} keep=${made ? KEEP : undefined}>
    ${
      made
        ? html`<${NewKey} made=${made} onClose=${close} />`
        : html`<${Form}
            verb="Rotate"
            onClose=${onClose}
            onSend=${async (/** @type {Record<string, string>} */ { overlap }) => {
              setMade(
                await ask(`keys/${encodeURIComponent(one.id)}/rotate`, {
                  method: 'POST',
                  body: { overlap_sec: Number(overlap) },
                }),
              );
            }}
          >
            ${isOwnKey(one.id) && html`<p class="callout warn">You are signed in with this key: you will be signed out when it ends.</p>`}
            <p>Creates a new key with the same rights, quota and expiry.</p>
            <${Field}
              name="overlap"
              label="The old key ends"
              control=${(/** @type {any} */ joined) =>
                html`<select ...${joined}>
                  ${OVERLAPS.map(([seconds, words]) => html`<option value=${seconds} selected=${seconds === 24 * HOUR_SEC}>${words}</option>`)}
                </select>`}
            />
          <//>`
    }
  <//>`;
}
