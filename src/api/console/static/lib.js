import { signal } from '@preact/signals';
import { h } from 'preact';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import htm from 'htm';

/** Replaces characters that are invisible or reverse the text around them. @param {unknown} child @returns {any} */
const visible = child =>
  typeof child === 'string'
    ? child.replaceAll(/(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '\u{fffd}')
    : Array.isArray(child)
      ? child.map(visible)
      : child;

/** @param {any} type @param {any} props @param {unknown[]} children */
const element = (type, props, ...children) => h(type, props, ...children.map(visible));

/**
 * Creates elements from a template. Every value becomes a text node, an attribute or a child, never markup.
 * @type {(strings: TemplateStringsArray, ...values: unknown[]) => import('preact').VNode}
 */
// The templates of the console have one root each, and htm returns a list only for several.
export const html = /** @type {any} */ (htm).bind(element);

/** A refusal of the server, as problem details (RFC 9457), or a failure on the way. */
export class Problem extends Error {
  /** @override */
  name = 'Problem';

  /**
   * @param {number} status 0: no response arrived.
   * @param {{ code?: string, title?: string, detail?: string, request_id?: string }} body
   */
  constructor(status, { code = 'unreachable', title, detail, request_id }) {
    super(detail ?? title ?? `The server answered with HTTP ${status}.`);
    this.status = status;
    this.code = code;
    this.requestId = request_id;
  }
}

/** True while the server answers. False: the console tries again until it does. */
export const isOnline = signal(true);
/** Grows when everything on the screen should be loaded again. */
export const generation = signal(0);
/**
 * @typedef {{ role: 'admin' | 'admin_read', key_id: string, key_name: string | null, idle_until: string, ends_at: string }} Session
 * The session of this browser. `unknown`: nobody has asked yet; `none`: somebody must sign in.
 */
/** @type {import('@preact/signals').Signal<Session | 'unknown' | 'none'>} */
export const session = signal(/** @type {Session | 'unknown' | 'none'} */ ('unknown'));

/** Why the sign-in is shown in place of a screen; empty if nobody was signed in, or if it is obvious. */
export const whySignedOut = signal('');

/** Returns why this session may not change anything; undefined if it may. */
export function whyReadOnly() {
  if (typeof session.value !== 'object' || session.value.role !== 'admin_read') return undefined;
  return session.value.key_id === 'operator'
    ? 'This session is read-only, as its link was made with --read-only. To change things, run `npx switchboard console` without it.'
    : 'This session is read-only: its key has the scope admin_read. Sign in with an admin key to change things.';
}

/** Whether this browser is signed in with a key. @param {string} id */
export const isOwnKey = id => typeof session.value === 'object' && session.value.key_id === id;

const SIGNED_OUT = 'signed out';
const ENDED =
  'Your session has ended: after half an hour without use, after twelve hours, or with its key. Sign in to return to this screen.';

/** Tells the other tabs of a sign-in or sign-out. */
const tabs = new BroadcastChannel('switchboard-console');
tabs.addEventListener('message', ({ data }) => {
  if (data === SIGNED_OUT && typeof session.value === 'object')
    endSession('You signed out in another tab of this browser.');
  void findSession();
});

/** Returns whether a form in a dialog has something that was entered and not saved. @param {string} [which] a selector */
export const hasUnsaved = (which = '') =>
  document.querySelector(`dialog form[data-changed]${which}`) !== null;

/** @param {string} why */
function endSession(why) {
  if (typeof session.value === 'object')
    whySignedOut.value = hasUnsaved() ? `${why} What you entered was not saved.` : why;
  session.value = 'none';
}

/** Asks whether this browser is signed in. */
export async function findSession() {
  const found = await exchange('session').catch(problem => problem);
  if (!(found instanceof Problem)) session.value = found;
  else if (found.code === 'unauthorized') endSession(ENDED);
  else if (found.status !== 0 && session.value === 'unknown') session.value = 'none';
}

/** Starts a session. @param {{ key: string } | { link: string }} proof */
export async function signIn(proof) {
  session.value = await exchange('session', { method: 'POST', body: proof });
  whySignedOut.value = '';
  tabs.postMessage('signed in');
}

export async function signOut() {
  await exchange('session/end', { method: 'POST', body: {} });
  session.value = 'none';
  tabs.postMessage(SIGNED_OUT);
}

/**
 * Asks the admin API. Refusals and failures are thrown as `Problem`. When the session has ended, the sign-in opens in place of
 * the screen, whose address stays.
 * @param {string} path below `/v1/admin`
 * @param {Asked} [options]
 * @returns {Promise<any>}
 */
export async function ask(path, options) {
  try {
    return await exchange(`../v1/admin/${path}`, options);
  } catch (error) {
    if (error instanceof Problem && error.code === 'unauthorized') endSession(ENDED);
    throw error;
  }
}

const SILENT = 'Switchboard does not answer. The console keeps trying.';
// A request may have arrived although its response did not.
const NOT_DONE =
  'Switchboard does not answer, so this was probably not done. Try again when the connection is back.';

/** @typedef {{ method?: string, query?: Query, body?: unknown, signal?: AbortSignal }} Asked */

/** @param {string} url @param {Asked} [options] @returns {Promise<any>} */
async function exchange(url, { method = 'GET', query = {}, body, signal: aborted } = {}) {
  const search = queryOf(query);
  /** @type {RequestInit} */
  const init = {
    method,
    // The cookie counts only beside this header, which no other site can send.
    headers: {
      'X-Switchboard-Console': '1',
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    ...(aborted ? { signal: aborted } : {}),
  };
  const response = await fetch(search ? `${url}?${search}` : url, init).catch(error => {
    if (aborted?.aborted) throw error;
    void reconnect();
    throw new Problem(0, { detail: method === 'GET' ? SILENT : NOT_DONE });
  });
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  throw new Problem(response.status, answer);
}

/** @typedef {Readonly<Record<string, string | number | null | undefined>>} Query */

/** @param {Query} query */
const queryOf = query =>
  new URLSearchParams(
    Object.entries(query).flatMap(([name, value]) =>
      value === undefined || value === null || value === '' ? [] : [[name, String(value)]],
    ),
  ).toString();

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8_000;

/** Asks for a sign of life until there is one, then loads the screen again. */
async function reconnect() {
  if (!isOnline.value) return;
  isOnline.value = false;
  for (let waitMs = FIRST_WAIT_MS; !isOnline.value; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
    await new Promise(resolve => setTimeout(resolve, waitMs));
    isOnline.value = await fetch('../healthz').then(
      ({ ok }) => ok,
      () => false,
    );
  }
  if (session.value === 'unknown') await findSession();
  generation.value++;
}

/**
 * The screen and its filters, from the address. They are in the fragment, which browsers never send: user ids and queries stay
 * out of the logs of servers.
 */
export const place = signal(readPlace());

addEventListener('hashchange', () => (place.value = readPlace()));

export function readPlace() {
  const [path = '', search = ''] = location.hash.replace(/^#\/?/, '').split('?');
  return { path: path.split('/').map(decode), filters: Object.fromEntries(new URLSearchParams(search)) };
}

/** @param {string} segment */
function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/**
 * Returns the address of a screen. Empty filters are omitted.
 * @param {string | readonly string[]} path
 * @param {Query} [filters]
 */
export function hrefOf(path, filters = {}) {
  const search = queryOf(filters);
  return `#/${[path].flat().map(encodeURIComponent).join('/')}${search && `?${search}`}`;
}

/**
 * Shows the same screen with other filters, from the first page unless a cursor is among them.
 * @param {Query} changes
 * @param {{ replace?: boolean }} [options] replace: without a step in the history, such as while typing
 */
export function filter(changes, { replace = false } = {}) {
  const { path, filters } = place.value;
  const { cursor: _first, ...rest } = filters;
  const href = hrefOf(path, { ...rest, ...changes });
  if (href === location.hash) return;
  if (!replace) location.hash = href;
  else {
    history.replaceState(null, '', href);
    place.value = readPlace();
  }
}

const ATTENDED_MS = 10 * 60_000;
let touchedAt = Date.now();
for (const event of ['keydown', 'pointerdown', 'wheel', 'focus'])
  addEventListener(event, () => (touchedAt = Date.now()), { passive: true });

/** Returns whether somebody looks at the page. Without this, its requests would keep a forgotten session alive. */
const isAttended = () => document.visibilityState === 'visible' && Date.now() - touchedAt < ATTENDED_MS;

/**
 * @template T
 * @typedef {{ readonly data: T | undefined, readonly problem: Problem | undefined, readonly isLoading: boolean }} Load
 */

/**
 * Loads data, again when an input changes or the connection is back. Earlier data stays until the new data arrives.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {readonly unknown[]} inputs
 * @param {{ everyMs?: number | undefined }} [options] everyMs: loads again in this interval while somebody looks
 * @returns {Load<T> & { reload: () => void }}
 */
export function useLoaded(load, inputs, { everyMs } = {}) {
  const [state, setState] = useState(
    /** @type {Load<T>} */ ({ data: undefined, problem: undefined, isLoading: true }),
  );
  const [times, setTimes] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const again = generation.value;
  useEffect(() => {
    const stop = new AbortController();
    setState(({ data }) => ({ data, problem: undefined, isLoading: true }));
    latest.current(stop.signal).then(
      data => !stop.signal.aborted && setState({ data, problem: undefined, isLoading: false }),
      problem => !stop.signal.aborted && setState(({ data }) => ({ data, problem, isLoading: false })),
    );
    return () => stop.abort();
    // The inputs of the caller decide, not the function, which is new each time.
  }, [...inputs, times, again]);
  const reload = useCallback(() => setTimes(count => count + 1), []);
  useEffect(() => {
    if (everyMs === undefined) return undefined;
    const timer = setInterval(() => {
      if (isAttended() && isOnline.value) reload();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return { data: state.data, problem: state.problem, isLoading: state.isLoading, reload };
}

/**
 * Messages for everybody, of which the newest is read out by screen readers.
 * @type {import('@preact/signals').Signal<readonly { id: number, text: string, tone: 'good' | 'bad' }[]>}
 */
export const messages = signal(
  /** @type {readonly { id: number, text: string, tone: 'good' | 'bad' }[]} */ ([]),
);

let lastMessage = 0;

/**
 * Shows a message for a while.
 * @param {string} text
 * @param {'good' | 'bad'} [tone]
 */
export function say(text, tone = 'good') {
  const id = ++lastMessage;
  messages.value = [...messages.value.slice(-2), { id, text, tone }];
  setTimeout(() => dismiss(id), tone === 'good' ? 5_000 : 12_000);
}

/** @param {number} id */
export const dismiss = id => {
  messages.value = messages.value.filter(message => message.id !== id);
};
