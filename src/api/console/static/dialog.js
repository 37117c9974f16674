import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { hasUnsaved, html, whyReadOnly } from './lib.js';
import { Icon, Trouble } from './parts.js';

/** @typedef {import('preact').ComponentChildren} Children */

const NOT_SAVED = 'What you entered is not saved. Leave again to discard it.';

/**
 * A modal dialog. Escape closes it, and the focus returns to where it was. It stays open at first if something was entered, and
 * also when the browser goes back.
 * @param {{ title: string, onClose: () => void, isWide?: boolean, keep?: string | undefined, children: Children }} props
 *   keep: why only a button of the content may close it now, which is said to those who try otherwise
 */
export function Dialog({ title, onClose, isWide = false, keep, children }) {
  const id = useId();
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  const address = useRef(location.href);
  const isGone = useRef(false);
  const [isHeld, setHeld] = useState(false);
  // A form that is being sent leads on by itself.
  const wouldLose = () => keep !== undefined || hasUnsaved(':not([aria-busy="true"])');
  /** Returns whether it must stay open, and says why. */
  const holds = () => {
    if (!wouldLose() || (keep === undefined && isHeld)) return false;
    setHeld(true);
    dialog.current?.scrollTo(0, 0);
    return true;
  };
  const latest = useRef({ wouldLose, holds });
  latest.current = { wouldLose, holds };
  const closed = () => {
    if (isGone.current) return;
    if (!holds()) return onClose();
    // Browsers let a page refuse Escape once.
    dialog.current?.showModal();
  };
  /** @param {Event} event */
  const cancelled = event => {
    if (holds()) event.preventDefault();
  };
  useEffect(() => {
    const ask = (/** @type {Event} */ event) => latest.current.wouldLose() && event.preventDefault();
    // This comes before `hashchange`, by which the screen follows the address.
    const stay = () => latest.current.holds() && history.pushState(null, '', address.current);
    addEventListener('beforeunload', ask);
    addEventListener('popstate', stay);
    return () => {
      removeEventListener('beforeunload', ask);
      removeEventListener('popstate', stay);
    };
  }, []);
  useEffect(() => {
    const element = dialog.current;
    const opener = document.activeElement;
    element?.showModal();
    const first = element?.querySelector('input, select, textarea');
    if (first instanceof HTMLElement) first.focus();
    return () => {
      isGone.current = true;
      element?.close();
      if (opener instanceof HTMLElement) opener.focus();
    };
  }, []);
  // The part of the content that had the focus may have been replaced by another.
  useEffect(() => {
    if (!dialog.current?.contains(document.activeElement)) heading.current?.focus();
  });
  return html`<dialog
    class=${isWide ? 'wide' : ''}
    aria-labelledby=${id}
    ref=${dialog}
    onClose=${closed}
    onCancel=${cancelled}
    onInput=${() => setHeld(false)}
  >
    <header>
      <h2 id=${id} tabindex="-1" ref=${heading}>${title}</h2>
      <button type="button" class="icon-only" aria-label="Close" onClick=${() => dialog.current?.close()}>
        <${Icon} name="close" />
      </button>
    </header>
    ${isHeld && html`<p class="callout warn" role="alert">${keep ?? NOT_SAVED}</p>`}
    ${children}
  </dialog>`;
}

/**
 * A form in a dialog. While it is sent its button is disabled; a refusal is shown above the buttons, which are always in view.
 * @param {{ verb: string, isDanger?: boolean, onClose: () => void, onSend: (fields: Record<string, string>, form: HTMLFormElement) => Promise<unknown>, children?: Children }} props
 */
export function Form({ verb, isDanger = false, onClose, onSend, children }) {
  const [state, setState] = useState(
    /** @type {{ isSending: boolean, problem?: import('./parts.js').Said }} */ ({ isSending: false }),
  );
  const isThere = useRef(true);
  useEffect(() => () => void (isThere.current = false), []);
  /** @param {SubmitEvent & { currentTarget: HTMLFormElement }} event */
  const send = async event => {
    event.preventDefault();
    const form = event.currentTarget;
    setState({ isSending: true });
    try {
      await onSend(fieldsOf(form), form);
      delete form.dataset['changed'];
      if (isThere.current) setState({ isSending: false });
    } catch (error) {
      setState({
        isSending: false,
        problem: inLabels(/** @type {import('./parts.js').Said} */ (error), form),
      });
    }
  };
  return html`<form aria-busy=${state.isSending} onSubmit=${send} onInput=${markChanged}>
    ${children}
    <footer>
      <${Trouble} problem=${state.problem} />
      <div class="buttons">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button class=${isDanger ? 'danger' : 'first'} disabled=${state.isSending}>${verb}</button>
      </div>
    </footer>
  </form>`;
}

/** @param {Event & { currentTarget: HTMLFormElement }} event */
const markChanged = ({ currentTarget }) => {
  currentTarget.dataset['changed'] = 'yes';
};

/**
 * Returns a refusal that names fields as the form does: `remote_url: must be …` becomes `Address: must be …`.
 * @param {import('./parts.js').Said} error @param {HTMLFormElement} form
 */
function inLabels({ message, code, requestId, link }, form) {
  const named = message.replaceAll(/(^|; )([a-z_.]+)(?:\[\d+\])?: /g, (whole, before, path) => {
    const control = form.elements.namedItem(path.split('.').at(-1));
    const label = control instanceof HTMLElement && labelOf(control, form);
    return label ? `${before}${label.firstChild?.textContent}: ` : whole;
  });
  // In a form, an empty field is what null is for the API.
  return { message: named.replaceAll(', or null for no limit', ''), code, requestId, link };
}

/** @param {HTMLElement} control @param {HTMLFormElement} form */
const labelOf = (control, form) =>
  control.querySelector('legend') ?? form.querySelector(`label[for="${control.id}"]`);

/** Returns where the JSON is wrong. Engines word their errors differently, and name the line or quote what is there. @param {string} error */
function placeIn(error) {
  const [, line, column] = /line (\d+) column (\d+)/.exec(error) ?? [];
  if (line !== undefined) return ` Look at line ${line}, character ${column}.`;
  const [, quoted] = /"(.+)"(?:\.\.\.)? is not valid JSON/s.exec(error) ?? [];
  return quoted === undefined ? '' : ` Look near ${quoted.trim().replaceAll(/\s+/g, ' ')}`;
}

/** Reads a field that has JSON. @param {string} what @param {string} text @returns {any} @throws Error for people */
export function jsonOf(what, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} must be JSON, such as ["a"] or {"b": 1}.${placeIn(String(error))}`, {
      cause: error,
    });
  }
}

/** @param {HTMLFormElement} form @returns {Record<string, string>} */
const fieldsOf = form =>
  Object.fromEntries(
    [...new FormData(form)].map(([name, value]) => [name, typeof value === 'string' ? value : '']),
  );

/**
 * Asks before something that cannot be undone.
 * @param {{ title: string, verb: string, onClose: () => void, onConfirm: () => Promise<unknown>, children: Children }} props
 */
export const Confirm = ({ title, verb, onClose, onConfirm, children }) =>
  html`<${Dialog} title=${title} onClose=${onClose}>
    <${Form}
      verb=${verb}
      isDanger
      onClose=${onClose}
      onSend=${async () => {
        await onConfirm();
        onClose();
      }}
    >
      ${children}
    <//>
  <//>`;

/**
 * A labelled field. Its control is given as the attributes of an input, or as a function of the attributes that join both.
 * @param {{ label: string, help?: Children, name: string, isOptional?: boolean, control?: (attributes: { id: string, name: string, 'aria-describedby'?: string }) => Children } & Record<string, unknown>} props
 */
export function Field({ label, help, name, isOptional = false, control, ...attributes }) {
  const id = useId();
  const joined = { id, name, ...(help ? { 'aria-describedby': `${id}-help` } : {}) };
  return html`<div class="field">
    <label for=${id}>${label}${isOptional && html` <span class="quiet">(optional)</span>`}</label>
    ${control ? control(joined) : html`<input autocomplete="off" required=${!isOptional} ...${joined} ...${attributes} />`}
    ${help && html`<p class="help" id=${`${id}-help`}>${help}</p>`}
  </div>`;
}

/** @param {{ name: string, label: Children, isOn?: boolean, value?: string, help?: string }} props */
export function Check({ name, label, isOn = false, value = 'on', help }) {
  const id = useId();
  return html`<div class="check">
    <input type="checkbox" id=${id} name=${name} value=${value} defaultChecked=${isOn} />
    <label for=${id}>${label}${help && html` <span class="quiet">${help}</span>`}</label>
  </div>`;
}

/**
 * A button for a change. A read-only session sees it disabled, with the reason.
 * @param {{ class?: string, onClick: () => void, disabled?: boolean, children: Children }} props
 */
export function Change({ class: look = '', onClick, disabled = false, children }) {
  const reason = whyReadOnly();
  return html`<button
    type="button"
    class=${look}
    disabled=${disabled || reason !== undefined}
    title=${reason}
    onClick=${onClick}
  >
    ${children}
  </button>`;
}
