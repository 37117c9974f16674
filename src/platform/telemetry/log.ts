import { pino, stdSerializers, type DestinationStream, type Logger } from 'pino';
import { activeSpan } from './tracing.ts';

export type Log = Logger;

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export const LOG_FORMATS = ['json', 'text'] as const;

export interface LogSettings {
  readonly level: LogLevel;
  /** Undefined: `text` on a terminal, `json` elsewhere. */
  readonly format: (typeof LOG_FORMATS)[number] | undefined;
  /** False disables colours in `text` even on a terminal. */
  readonly hasColours: boolean;
}

/** Header and field names whose values never reach a log, at the depths at which this program logs objects. */
const SECRET_FIELDS = [
  'authorization',
  'cookie',
  '["x-api-key"]',
  '["set-cookie"]',
  'api_key',
  'access_token',
  'refresh_token',
];
const REDACTED = SECRET_FIELDS.flatMap(field => {
  const path = field.startsWith('[') ? field : `.${field}`;
  return [path.replace(/^\./, ''), `*${path}`, `*.*${path}`];
});

/** Removes query parameters from the fields and the message of a failed query's error. */
function describeError(error: unknown) {
  if (!(error instanceof Error)) return error;
  const { type, message, stack } = stdSerializers.err(error);
  const withoutParams = (text: string) => text.replace(/\nparams:[\s\S]*?(?=\n {4}at |$)/g, '');
  const cause = error.cause instanceof Error ? { cause: error.cause.message } : {};
  return { type, message: withoutParams(message), stack: withoutParams(stack), ...cause };
}

/** The number of pino's level. */
const WARN = 40;
/** How long a line is buffered, in milliseconds. */
const KEPT_MS = 100;
/** The maximum number of buffered characters. */
const MAX_CHARS = 16 * 1024;
/** A pipe that several processes write to keeps so many bytes together (POSIX PIPE_BUF). */
const MAX_SHARED_CHARS = 4096;

/**
 * Buffers lines for stderr, because a system call for each request was one of the largest costs of a proxied
 * call. Warnings and errors flush the buffer immediately, and so does the end of the process. A kill loses at
 * most the info lines of the last tenth of a second.
 */
class Batches implements DestinationStream {
  /** Makes pino pass each line's level. */
  readonly [pino.symbols.needsMetadataGsym] = true;
  lastLevel = 0;
  #lines = '';
  readonly #render: (line: string) => string;
  readonly #maxChars: number;
  readonly #out = pino.destination({ dest: 2, sync: true });
  readonly #flush = (): void => {
    if (this.#lines === '') return;
    const lines = this.#lines;
    this.#lines = '';
    this.#out.write(lines);
  };

  constructor(render: (line: string) => string = line => line, maxChars = MAX_CHARS) {
    this.#render = render;
    this.#maxChars = maxChars;
    process.on('exit', this.#flush);
  }

  write(line: string): void {
    const text = this.#render(line);
    if (this.#lines.length + text.length > this.#maxChars) this.#flush();
    if (this.#lines === '') setTimeout(this.#flush, KEPT_MS).unref();
    this.#lines += text;
    if (this.lastLevel >= WARN) this.#flush();
  }
}

/** Shared by all logs of the process. */
let stderr: Batches | undefined;

const NO_FIELDS = {};

let second = Number.NaN;
let upToSecond = '';

/** Returns the member `time` in ISO 8601. Formats once a second, because a line for each request adds up. */
function timestamp(): string {
  const now = Date.now();
  const ms = now % 1000;
  if (now - ms !== second) {
    second = now - ms;
    upToSecond = `,"time":"${new Date(second).toISOString().slice(0, -4)}`;
  }
  return `${upToSecond}${ms < 10 ? '00' : ms < 100 ? '0' : ''}${ms}Z"`;
}

/** Creates a log of JSON lines on stderr (stdout is for results). Lines of a traced request name its span. */
export function createLog(level: LogLevel, destination?: DestinationStream): Log {
  return pino(
    {
      level,
      base: null,
      serializers: { err: describeError },
      redact: { paths: REDACTED, censor: '[redacted]' },
      timestamp,
      mixin: () => activeSpan()?.logFields ?? NO_FIELDS,
      mixinMergeStrategy: (line, fields) => (fields === NO_FIELDS ? line : { ...fields, ...line }),
    },
    destination ?? (stderr ??= new Batches()),
  );
}

/**
 * Returns a child of a log for frequent lines, at a third of the cost: nothing is redacted, so the fields must contain no secrets,
 * and no serializer is applied, so they must be plain JSON.
 */
export function plainLog(log: Log): Log {
  const lines = log.child({});
  const bindings = JSON.stringify(lines.bindings()).slice(1, -1);
  const start = bindings === '' ? '' : `,${bindings}`;
  const lineOfFields = (fields: object, message: string | undefined, level: number, time: string) =>
    `{"level":${level}${time}${start},${JSON.stringify({ ...fields, msg: message }).slice(1)}\n`;
  return Object.assign(lines, { [pino.symbols.asJsonSym]: lineOfFields });
}

/**
 * Opens the log of the process on stderr: one JSON object per line, or one line for people.
 * @param worker the number of this process if several write to the same stderr; every line has it
 */
export function openLog({ level, format, hasColours }: LogSettings, worker?: number): Log {
  const isTerminal = process.stderr.isTTY;
  const isJson = (format ?? (isTerminal ? 'text' : 'json')) === 'json';
  const render = isJson ? undefined : (line: string) => lineOf(line, hasColours && isTerminal);
  if (worker !== undefined) return createLog(level, new Batches(render, MAX_SHARED_CHARS)).child({ worker });
  return createLog(level, render && new Batches(render));
}

/** Fields omitted from lines for people, because they are shown in another form or only help programs. */
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
 * Returns a line for people from a JSON log line, which contains no secrets.
 * @param hasColours only for a terminal that supports them
 * @example
 * lineOf('{"level":40,"time":"2026-01-31T12:00:00Z","reason":"ECONNREFUSED","msg":"lost the database"}', false); // '12:00:00
 * warning: lost the database (reason ECONNREFUSED)'
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
  const { method, path, rpc, status, durationMs, code, aborted, worker } = record;
  const colour = Number(status) >= 500 ? RED : Number(status) >= 400 ? YELLOW : GREEN;
  const parts = [
    shown(method),
    shown(path),
    ...(rpc === undefined ? [] : [shown(rpc)]),
    aborted === true ? paint(YELLOW, 'aborted') : paint(colour, shown(status)),
    `${Math.round(Number(durationMs))} ms`,
    ...(code === undefined ? [] : [shown(code)]),
    ...(worker === undefined ? [] : [`worker ${shown(worker)}`]),
  ];
  return parts.join(' ');
}

function eventText(record: Readonly<Record<string, unknown>>, paint: Paint): string {
  const { msg, event, ...rest } = record;
  const isAudit = msg === 'audit event';
  const fields = Object.entries(isAudit ? rest : record)
    .filter(([name]) => !LEFT_OUT.has(name))
    .map(([name, value]) => `${name} ${shown(value)}`);
  const details = [...errorOf(record['err']), ...fields].join(', ');
  const text = `${levelWord(Number(record['level']), paint)}${isAudit ? `audit: ${shown(event)}` : shown(msg)}`;
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

/** Returns a value as short text. Characters that could move the cursor or reverse text become question marks. */
function shown(value: unknown): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  const plain = text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '?');
  return plain.length <= MAX_FIELD_CHARS ? plain : `${plain.slice(0, MAX_FIELD_CHARS).toWellFormed()}…`;
}
