import { monotonicMs, type Clock } from '../time.ts';
import type { Log } from './log.ts';

const EVERY_MS = 60_000;
/** Messages that are remembered; beyond it all are forgotten, and may be logged again. */
const MAX_KINDS = 1_000;

/** Logs a warning of one kind at most once a minute, however often it is given. */
export class ThrottledLog {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #everyMs: number;
  readonly #loggedAtMs = new Map<string, number>();

  constructor(log: Log, clock: Clock, everyMs = EVERY_MS) {
    this.#log = log;
    this.#clock = clock;
    this.#everyMs = everyMs;
  }

  /** @param kind tells which warnings are the same; by default the message does */
  warn(fields: object, message: string, kind = message): void {
    const nowMs = monotonicMs(this.#clock);
    if (nowMs - (this.#loggedAtMs.get(kind) ?? -Infinity) < this.#everyMs) return;
    if (this.#loggedAtMs.size >= MAX_KINDS) this.#loggedAtMs.clear();
    this.#loggedAtMs.set(kind, nowMs);
    this.#log.warn(fields, message);
  }

  /** Forgets what was logged, so that the next warning is logged at once. */
  reset(): void {
    this.#loggedAtMs.clear();
  }
}

/** Returns an error's message in one line. For a name with several addresses Node gives a code, but no message. */
export function reasonOf(error: unknown): string {
  const { message, code } = error as NodeJS.ErrnoException;
  return message || (code ?? 'unknown reason');
}

/** Logs the beginning and the end of an outage, once each, however many calls meet it. */
export class OutageLog {
  readonly #log: Log | undefined;
  readonly #recovered: string;
  #trouble: string | undefined;

  /** @param recovered the message that ends an outage, such as `Redis is used again` */
  constructor(log: Log | undefined, recovered: string) {
    this.#log = log;
    this.#recovered = recovered;
  }

  /** What is wrong at present, in a few words; undefined while all is well. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** @param message is logged only where `trouble` is not what it was */
  failed(trouble: string, fields: object = {}, message = trouble): void {
    if (this.#trouble === trouble) return;
    this.#trouble = trouble;
    this.#log?.warn(fields, message);
  }

  succeeded(): void {
    if (this.#trouble === undefined) return;
    this.#trouble = undefined;
    this.#log?.info(this.#recovered);
  }
}
