import { setTimeout as delay } from 'node:timers/promises';
import { createClient, ErrorReply } from '@redis/client';
import { raceDeadline } from '../time.ts';
import type { Log } from '../telemetry/log.ts';
import { OutageLog, reasonOf } from '../telemetry/throttled-log.ts';

export interface RedisTimes {
  /** The time a command has before its caller goes on without it. */
  readonly commandMs: number;
  /** The time a connection has, its first commands included. */
  readonly connectMs: number;
  /** The wait before the next try after a failure. */
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
 * A connection to Redis for work that can go on without it. A command that does not succeed within a short time rejects, and
 * so does every further one at once, until a new connection has shown in the background that it can write.
 */
export class Redis {
  readonly #url: string;
  readonly #times: RedisTimes;
  readonly #outage: OutageLog;
  #client: Client | undefined;
  /** Ends the present connection, with the reason. */
  #lose: (reason: unknown) => void = () => {};
  readonly #closing = new AbortController();
  readonly #running: Promise<void>;

  private constructor({ url, log, times }: RedisOptions, onTried: () => void) {
    this.#url = url;
    this.#times = { ...TIMES, ...times };
    this.#outage = new OutageLog(log, 'Redis is used again');
    this.#running = this.#stayConnected(onTried);
  }

  /** Resolves when the first try to connect has ended, well or not. */
  static async open(options: RedisOptions): Promise<Redis> {
    const { promise: tried, resolve: onTried } = Promise.withResolvers<void>();
    const redis = new Redis(options, onTried);
    await tried;
    return redis;
  }

  /** Says in a few words why Redis is not asked at the moment; undefined when it is. */
  get trouble(): string | undefined {
    return this.#outage.trouble;
  }

  /**
   * Runs one command, or several in one exchange.
   * @throws RedisUnavailable
   */
  async run<T>(command: (client: Client) => Promise<T>): Promise<T> {
    const client = this.#client;
    if (!client) throw new RedisUnavailable(this.trouble);
    try {
      return await within(this.#times.commandMs, command(client));
    } catch (error) {
      if (client === this.#client) this.#lose(error);
      throw new RedisUnavailable(reasonOf(error), { cause: error });
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
        this.#outage.succeeded();
        onTried();
        await lost;
      } catch (error) {
        this.#client = undefined;
        const trouble = error instanceof ErrorReply ? 'Redis refuses (check REDIS_URL)' : 'Redis unavailable';
        if (!signal.aborted) this.#outage.failed(trouble, { reason: reasonOf(error) });
        onTried();
      }
      if (client.isOpen) client.destroy();
      await delay(this.#times.retryMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }
}

/** Runs a script that writes: on a replica, on a full one, or for a user without the right, every later one would fail. */
async function opened(client: Client): Promise<void> {
  await client.connect();
  await client.eval("return redis.call('set', KEYS[1], '1', 'EX', 1)", { keys: ['switchboard:trial'] });
}

const within = <T>(ms: number, work: Promise<T>): Promise<T> =>
  raceDeadline(work, ms, () => new Error(`no answer in ${ms} ms`));
