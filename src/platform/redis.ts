import { setTimeout as delay } from 'node:timers/promises';
import { createClient, ErrorReply } from '@redis/client';
import type { Log } from './telemetry/log.ts';

export interface RedisTimes {
  /** What a command may take before its caller goes on without it. */
  readonly commandMs: number;
  /** What a connection may take, its first commands included. */
  readonly connectMs: number;
  /** Before the next try after a failure. */
  readonly retryMs: number;
}

const TIMES: RedisTimes = { commandMs: 250, connectMs: 2_000, retryMs: 500 };

const connect = (url: string, connectTimeout: number) =>
  createClient({
    url,
    RESP: 2,
    disableOfflineQueue: true,
    disableClientInfo: true,
    socket: { connectTimeout, reconnectStrategy: false },
  });
type Client = ReturnType<typeof connect>;

/** Redis cannot be asked just now. The message holds neither the address nor the password. */
class RedisUnavailable extends Error {
  override readonly name = 'RedisUnavailable';
}

interface RedisOptions {
  /** `redis://` or `rediss://`, with user, password and number of the database. It must reach no log and no error. */
  readonly url: string;
  readonly log: Log;
  readonly times?: Partial<RedisTimes>;
}

/**
 * A connection to Redis for what can go on without it: a command that does not succeed within a short time rejects, and so
 * does every further one at once, until a new connection has shown in the background that it can write.
 */
export class Redis {
  readonly #url: string;
  readonly #log: Log;
  readonly #times: RedisTimes;
  #client: Client | undefined;
  #trouble: string | undefined;
  /** Ends the present connection, with the reason. */
  #lose: (reason: unknown) => void = () => {};
  readonly #closing = new AbortController();
  readonly #running: Promise<void>;

  private constructor({ url, log, times }: RedisOptions, onTried: () => void) {
    this.#url = url;
    this.#log = log;
    this.#times = { ...TIMES, ...times };
    this.#running = this.#stayConnected(onTried);
  }

  /** Resolves when the first try to connect has ended, well or not. */
  static async open(options: RedisOptions): Promise<Redis> {
    const { promise: tried, resolve: onTried } = Promise.withResolvers<void>();
    const redis = new Redis(options, onTried);
    await tried;
    return redis;
  }

  /** Why Redis is not asked at the moment, in a few words; undefined when it is. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /**
   * Runs one command, or several in one exchange.
   * @throws RedisUnavailable
   */
  async run<T>(command: (client: Client) => Promise<T>): Promise<T> {
    const client = this.#client;
    if (!client) throw new RedisUnavailable(this.#trouble);
    try {
      return await within(this.#times.commandMs, command(client));
    } catch (error) {
      if (client === this.#client) this.#lose(error);
      throw new RedisUnavailable(wordsOf(error), { cause: error });
    }
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#lose(undefined);
    await this.#running;
  }

  async #stayConnected(onTried: () => void): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      const { promise: lost, reject: lose } = Promise.withResolvers<never>();
      this.#lose = lose;
      const client = connect(this.#url, this.#times.connectMs);
      client.on('error', lose);
      try {
        await Promise.race([lost, within(this.#times.connectMs, opened(client))]);
        this.#client = client;
        this.#recovered();
        onTried();
        await lost;
      } catch (error) {
        this.#client = undefined;
        if (!signal.aborted) this.#failed(error);
        onTried();
      }
      if (client.isOpen) client.destroy();
      await delay(this.#times.retryMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  #recovered(): void {
    if (this.#trouble !== undefined) this.#log.info('Redis is used again');
    this.#trouble = undefined;
  }

  #failed(error: unknown): void {
    const before = this.#trouble;
    this.#trouble = error instanceof ErrorReply ? 'Redis refuses (check REDIS_URL)' : 'Redis unavailable';
    if (this.#trouble !== before) this.#log.warn({ reason: wordsOf(error) }, this.#trouble);
  }
}

/** A script that writes works: on a replica, on a full one, or for a user without the right, it would fail at every call. */
async function opened(client: Client): Promise<void> {
  await client.connect();
  await client.eval("return redis.call('set', KEYS[1], '1', 'EX', 1)", { keys: ['switchboard:trial'] });
}

/** An answer that lies there already, while this process was held up, is in time. */
async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => setImmediate(() => reject(new Error(`no answer in ${ms} ms`))), ms);
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Of a name with several addresses Node gives an AggregateError: a code, but no message. */
function wordsOf(error: unknown): string {
  const { message, code } = error as NodeJS.ErrnoException;
  return message || (code ?? 'unknown reason');
}
