/** Fields that a line for people leaves out: it has them in another form, or they only help programs. */
const LEFT_OUT = new Set(['level', 'time', 'msg', 'err', 'trace_id', 'span_id', 'requestId']);
const MAX_FIELD_CHARS = 120;

const RED = 31;
const GREEN = 32;
const YELLOW = 33;
const GREY = 90;

type Paint = (colour: number, text: string) => string;
const paints: Paint = (colour, text) => `\u001B[${colour}m${text}\u001B[0m`;
const leavesPlain: Paint = (_colour, text) => text;

/**
 * Returns one line for people from one JSON line of the log. Secrets are already left out of the JSON.
 * @param hasColours only for a terminal that shows them
 * @example
 * lineOf('{"level":40,"time":"2026-01-31T12:00:00Z","reason":"ECONNREFUSED","msg":"lost the database"}', false);
 * // '12:00:00 warning: lost the database (reason ECONNREFUSED)'
 */
export function lineOf(json: string, hasColours: boolean): string {
  const record = JSON.parse(json) as Readonly<Record<string, unknown>>;
  const paint = hasColours ? paints : leavesPlain;
  const text = record['msg'] === 'request' ? requestText(record, paint) : eventText(record, paint);
  return `${paint(GREY, timeOf(record['time']))} ${text}\n`;
}

/** Returns the local time of day. */
const timeOf = (time: unknown): string => new Date(String(time)).toTimeString().slice(0, 8);

function requestText(record: Readonly<Record<string, unknown>>, paint: Paint): string {
  const { method, path, status, durationMs, code, aborted } = record;
  const colour = Number(status) >= 500 ? RED : Number(status) >= 400 ? YELLOW : GREEN;
  const parts = [
    shown(method),
    shown(path),
    aborted === true ? paint(YELLOW, 'aborted') : paint(colour, shown(status)),
    `${Math.round(Number(durationMs))} ms`,
    ...(code === undefined ? [] : [shown(code)]),
  ];
  return parts.join(' ');
}

function eventText(record: Readonly<Record<string, unknown>>, paint: Paint): string {
  const fields = Object.entries(record)
    .filter(([name]) => !LEFT_OUT.has(name))
    .map(([name, value]) => `${name} ${shown(value)}`);
  const details = [...errorOf(record['err']), ...fields].join(', ');
  const text = `${levelWord(Number(record['level']), paint)}${shown(record['msg'])}`;
  return details === '' ? text : `${text} ${paint(GREY, `(${details})`)}`;
}

function levelWord(level: number, paint: Paint): string {
  if (level >= 50) return `${paint(RED, 'error:')} `;
  if (level >= 40) return `${paint(YELLOW, 'warning:')} `;
  return level < 30 ? `${paint(GREY, 'debug:')} ` : '';
}

function errorOf(error: unknown): string[] {
  if (typeof error !== 'object' || error === null) return error === undefined ? [] : [shown(error)];
  const { message, cause } = error as { message?: unknown; cause?: unknown };
  return [message, cause].filter(part => part !== undefined && part !== '').map(shown);
}

/** Returns a value as short text. Characters that could move the cursor or turn text around become question marks. */
function shown(value: unknown): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  const plain = text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '?');
  return plain.length <= MAX_FIELD_CHARS ? plain : `${plain.slice(0, MAX_FIELD_CHARS).toWellFormed()}…`;
}
