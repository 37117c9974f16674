import { monotonicMs, type Clock } from '../time.ts';
import type { Log } from './log.ts';

const EVERY_MS = 60_000;
/** The number of remembered messages; beyond it all are forgotten and may be logged again. */
const MAX_KINDS = 1_000;

/** Logs a warning of one kind at most once a minute. */
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

  /** @param kind identifies equal warnings; default: the message */
  warn(fields: object, message: string, kind = message): void {
    const nowMs = monotonicMs(this.#clock);
    if (nowMs - (this.#loggedAtMs.get(kind) ?? -Infinity) < this.#everyMs) return;
    if (this.#loggedAtMs.size >= MAX_KINDS) this.#loggedAtMs.clear();
    this.#loggedAtMs.set(kind, nowMs);
    this.#log.warn(fields, message);
  }

  /** Resets the throttle, so that the next warning is logged immediately. */
  reset(): void {
    this.#loggedAtMs.clear();
  }
}

/** Returns an error's message in one line. For a host with several addresses, Node sets a code but no message. */
export function reasonOf(error: unknown): string {
  const { message, code } = error as NodeJS.ErrnoException;
  return message || (code ?? 'unknown reason');
}

/** Logs the start and the end of an outage, once each, however many calls it affects. */
export class OutageLog {
  readonly #log: Log | undefined;
  readonly #recovered: string;
  #trouble: string | undefined;

  /** @param recovered the message for the end of an outage, such as `Redis recovered` */
  constructor(log: Log | undefined, recovered: string) {
    this.#log = log;
    this.#recovered = recovered;
  }

  /** The current problem in a few words; undefined while there is none. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** @param message logged only if `trouble` has changed */
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
