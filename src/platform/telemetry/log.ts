import { pino, stdSerializers, type DestinationStream, type Logger } from 'pino';
import { lineOf } from './log-lines.ts';
import { activeSpan } from './tracing.ts';

export type Log = Logger;

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export const LOG_FORMATS = ['json', 'text'] as const;

export interface LogSettings {
  readonly level: LogLevel;
  /** Undefined: `text` on a terminal, `json` elsewhere. */
  readonly format: (typeof LOG_FORMATS)[number] | undefined;
  /** False on a terminal, too, leaves colours out of `text`. */
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

/** A failed query's error carries its parameters, in its fields and in its message: they stay out of the log. */
function describeError(error: unknown) {
  if (!(error instanceof Error)) return error;
  const { type, message, stack } = stdSerializers.err(error);
  const withoutParams = (text: string) => text.replace(/\nparams:[\s\S]*?(?=\n {4}at |$)/g, '');
  const cause = error.cause instanceof Error ? { cause: error.cause.message } : {};
  return { type, message: withoutParams(message), stack: withoutParams(stack), ...cause };
}

/** pino's number of the level. */
const WARN = 40;
/** The time for which a line is kept back, in milliseconds. */
const KEPT_MS = 100;
/** More characters than these are not kept back. */
const MAX_CHARS = 16 * 1024;

/**
 * Lines on their way to stderr. They go out several at a time, as one system call for each request was among the larger costs
 * of a proxied call; warnings and worse go at once with all before them, and the process does not end before the rest has
 * gone. So a kill loses the info lines of its last tenth of a second at most.
 */
class Batches implements DestinationStream {
  /** Has pino say each line's level. */
  readonly [pino.symbols.needsMetadataGsym] = true;
  lastLevel = 0;
  #lines = '';
  readonly #render: (line: string) => string;
  readonly #out = pino.destination({ dest: 2, sync: true });
  readonly #flush = (): void => {
    if (this.#lines === '') return;
    const lines = this.#lines;
    this.#lines = '';
    this.#out.write(lines);
  };

  constructor(render: (line: string) => string = line => line) {
    this.#render = render;
    process.on('exit', this.#flush);
  }

  write(line: string): void {
    if (this.#lines === '') setTimeout(this.#flush, KEPT_MS).unref();
    this.#lines += this.#render(line);
    if (this.lastLevel >= WARN || this.#lines.length >= MAX_CHARS) this.#flush();
  }
}

/** One for all logs of the process. */
let stderr: Batches | undefined;

const NO_FIELDS = {};

/** JSON lines on stderr (stdout is for what a person or a script asked for). Those of a request that is traced name its span. */
export function createLog(level: LogLevel, destination?: DestinationStream): Log {
  return pino(
    {
      level,
      base: null,
      serializers: { err: describeError },
      redact: { paths: REDACTED, censor: '[redacted]' },
      timestamp: pino.stdTimeFunctions.isoTime,
      mixin: () => activeSpan()?.logFields ?? NO_FIELDS,
      mixinMergeStrategy: (line, fields) => (fields === NO_FIELDS ? line : { ...fields, ...line }),
    },
    destination ?? (stderr ??= new Batches()),
  );
}

/** Opens the log of the process on stderr: one JSON object a line, or one line for people. */
export function openLog({ level, format, hasColours }: LogSettings): Log {
  const isTerminal = process.stderr.isTTY;
  if ((format ?? (isTerminal ? 'text' : 'json')) === 'json') return createLog(level);
  return createLog(level, new Batches(line => lineOf(line, hasColours && isTerminal)));
}
