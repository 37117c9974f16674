import type { Process, Reply } from './processes.ts';

/** Processes in turn, as a balancer without health checks has them. */
export interface Target {
  readonly name: string;
  /** Of its present life. */
  process: Process;
}

export interface Answer {
  readonly reply: Reply;
  /** Who gave it. */
  readonly name: string;
}

/** More than one round: a process that is being restarted is met again. */
const MAX_ATTEMPTS = 12;

/**
 * A round-robin client. What it sends must be safe to send twice (reading, or with an Idempotency-Key), as it tries the next
 * process where a connection was refused, or lost before an answer came, and where a process says 503 with Retry-After.
 */
export class Balancer {
  readonly #targets: readonly Target[];
  #turn = 0;
  /** Why it had to try again, and how often. */
  readonly retried: Record<string, number> = {};

  constructor(targets: readonly Target[]) {
    this.#targets = targets;
  }

  /** @throws the last failure, when no attempt was answered; whatever is not a lost connection, at once. */
  async send(act: (process: Process) => Promise<Reply>): Promise<Answer> {
    let failure: unknown;
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      const target = this.#targets[this.#turn++ % this.#targets.length];
      if (!target) throw new Error('no process');
      try {
        const reply = await act(target.process);
        if (reply.status !== 503 || !reply.headers.has('retry-after')) return { reply, name: target.name };
        failure = new Error(`503 from ${target.name}: ${reply.text}`);
        this.#count('503');
      } catch (error) {
        const code = lostConnection(error);
        if (code === undefined) throw error;
        failure = error;
        this.#count(code);
      }
    }
    throw failure;
  }

  #count(why: string): void {
    this.retried[why] = (this.retried[why] ?? 0) + 1;
  }
}

/** The code of the error below `fetch failed`, where it is one of a connection. */
function lostConnection(error: unknown): string | undefined {
  const cause = error instanceof Error ? error.cause : undefined;
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : undefined;
  return code !== undefined && ['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET'].includes(code)
    ? code
    : undefined;
}
