/** Words and numbers for people. */

const NUMBER = new Intl.NumberFormat('en');
const SHORT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const SHARE = new Intl.NumberFormat('en', { style: 'percent', maximumFractionDigits: 1 });
const DATE_TIME = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
const AGO = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });

/** @param {number} value */
export const number = value => NUMBER.format(value);
/** @param {number} value */
export const short = value => SHORT.format(value);
/** @param {number} value */
export const share = value => SHARE.format(value);

/** @param {number} count @param {string} one @param {string} [many] */
export const counted = (count, one, many = one === 'search' ? 'searches' : `${one}s`) =>
  `${number(count)} ${count === 1 ? one : many}`;

const LIST = new Intl.ListFormat('en');
/** @param {readonly string[]} texts */
export const listed = texts => LIST.format(texts);

/**
 * Returns the uses of which a key has none left this month.
 * @param {{ used_this_month: Record<string, number>, monthly_quota: Record<string, number | null> }} key
 */
export const usedUp = ({ used_this_month: used, monthly_quota: quota }) =>
  ['calls', 'searches'].filter(use => (used[use] ?? 0) >= (quota[use] ?? Infinity));

/** @param {number} ms */
export const duration = ms =>
  ms < 1_000 ? `${Math.round(ms)} ms` : `${Number((ms / 1_000).toFixed(ms < 10_000 ? 1 : 0))} s`;

/** @param {string} at */
export const dateTime = at => DATE_TIME.format(new Date(at));

/** @type {readonly [Intl.RelativeTimeFormatUnit, number][]} */
const UNITS = [
  ['year', 31_536_000],
  ['month', 2_592_000],
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
];

/** Returns how long ago a time was, or how soon it will be. @param {string} at */
export function ago(at) {
  const seconds = (Date.parse(at) - Date.now()) / 1_000;
  if (Math.abs(seconds) < 10) return 'just now';
  const [unit, size] = UNITS.find(([, length]) => Math.abs(seconds) >= length) ?? ['second', 1];
  return AGO.format(Math.trunc(seconds / size), unit);
}

/**
 * A word for a state, with its colour and what it means.
 * @typedef {{ word: string, tone: 'good' | 'warn' | 'bad' | 'quiet' | 'info', help?: string }} Said
 */

/** @type {Record<string, Said>} */
export const ACCESS = {
  open: { word: 'Open', tone: 'good', help: 'Anybody can call it.' },
  connected: { word: 'Connected', tone: 'good', help: 'Calls carry what the server requires.' },
  connect: { word: 'Connect first', tone: 'info', help: 'Somebody must sign in or enter a key first.' },
  setup_needed: {
    word: 'Setup needed',
    tone: 'warn',
    help: 'The server cannot be called until you set up its sign-in.',
  },
  unknown: { word: 'Unknown', tone: 'quiet', help: 'A call will tell what it wants.' },
};

/** @type {Record<string, string>} */
export const ACCESS_KIND = {
  none: 'nothing',
  credentials: 'a key',
  oauth: 'a sign-in at the server',
  provider: 'an account at an identity provider',
  unknown: 'not known',
};

/** @type {Record<string, Said>} */
export const HEALTH = {
  ok: { word: 'Healthy', tone: 'good', help: 'It answered the last check.' },
  needs_sign_in: {
    word: 'Wants sign-in',
    tone: 'info',
    help: 'It answered the last check and asked for credentials.',
  },
  not_mcp: { word: 'Not MCP', tone: 'bad', help: 'There is no MCP server at its address.' },
  unreachable: { word: 'Unreachable', tone: 'bad', help: 'It did not answer the last check.' },
  unvisited: { word: 'Not checked', tone: 'quiet', help: 'This address was never checked.' },
};

/** @type {Record<string, Said>} */
export const CONNECTION = {
  active: { word: 'Works', tone: 'good' },
  needs_reauth: {
    word: 'Sign in again',
    tone: 'warn',
    help: 'The provider no longer accepts it. The user must sign in again.',
  },
  rejected: { word: 'Refused', tone: 'bad', help: 'The server no longer accepts the key or the sign-in.' },
};

/** @type {Record<string, Said>} */
export const OUTCOME = {
  ok: { word: 'Done', tone: 'good' },
  refused: { word: 'Refused', tone: 'warn' },
  failed: { word: 'Failed', tone: 'bad' },
};

/** Returns the words for a state, and the state itself if it has none. @param {Record<string, Said>} words @param {string} state @returns {Said} */
export const said = (words, state) => words[state] ?? { word: state, tone: 'quiet' };

/** Why requests were refused, by the code of the error. @type {Record<string, string>} */
export const REFUSALS = {
  unauthorized: 'no valid key',
  insufficient_scope: 'the key lacks the scope',
  rate_limited: 'too many requests',
  quota_exceeded: 'the quota is used up',
};

/** @type {Record<string, string>} */
const WARNINGS = {
  definition_changed: 'Its definition changed within the last 7 days.',
};

/** @param {string} warning `definition_changed` or `suspicious:<rule>` */
export const warningText = warning =>
  WARNINGS[warning] ?? `Its text may mislead a model (${warning.replace(/^suspicious:/, '')}).`;

/** Writes an event such as `key_created` in words. @param {string} event */
export const eventWords = event => {
  const words = event.replaceAll('_', ' ').replace('oauth', 'OAuth');
  return words.charAt(0).toUpperCase() + words.slice(1);
};
