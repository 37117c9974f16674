import { setTimeout as delay } from 'node:timers/promises';
import { createClient, ErrorReply } from '@redis/client';
import { raceDeadline } from '../time.ts';
import type { Log } from '../telemetry/log.ts';
import { OutageLog, reasonOf } from '../telemetry/throttled-log.ts';

export interface RedisTimes {
  /** The timeout of a command, after which its caller continues without it. */
  readonly commandMs: number;
  /** The timeout of connecting, including the first commands. */
  readonly connectMs: number;
  /** The pause before the next attempt after a failure. */
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

/** Redis is unavailable. The message contains neither the address nor the password. */
class RedisUnavailable extends Error {
  override readonly name = 'RedisUnavailable';
}

interface RedisOptions {
  /** `redis://` or `rediss://`, with user, password and database number. Must never reach a log or an error. */
  readonly url: string;
  readonly log: Log;
  readonly times?: Partial<RedisTimes>;
}

/**
 * A connection to Redis for work that can continue without it. If a command does not succeed in time, it rejects, and so do
 * all further ones immediately, until a new connection has proved in the background that it can write.
 */
export class Redis {
  readonly #url: string;
  readonly #times: RedisTimes;
  readonly #outage: OutageLog;
  #client: Client | undefined;
  /** Ends the current connection, with the reason. */
  #lose: (reason: unknown) => void = () => {};
  readonly #closing = new AbortController();
  readonly #running: Promise<void>;

  private constructor({ url, log, times }: RedisOptions, onTried: () => void) {
    this.#url = url;
    this.#times = { ...TIMES, ...times };
    this.#outage = new OutageLog(log, 'Redis recovered');
    this.#running = this.#stayConnected(onTried);
  }

  /** Resolves when the first connection attempt has ended, successful or not. */
  static async open(options: RedisOptions): Promise<Redis> {
    const { promise: tried, resolve: onTried } = Promise.withResolvers<void>();
    const redis = new Redis(options, onTried);
    await tried;
    return redis;
  }

  /** Returns why Redis is currently unavailable, in a few words; undefined if it is available. */
  get trouble(): string | undefined {
    return this.#outage.trouble;
  }

  /**
   * Runs one or more commands in one round trip.
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
        const trouble =
          error instanceof ErrorReply ? 'Redis rejected a command (check REDIS_URL)' : 'Redis unavailable';
        if (!signal.aborted) this.#outage.failed(trouble, { reason: reasonOf(error) });
        onTried();
      }
      if (client.isOpen) client.destroy();
      await delay(this.#times.retryMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }
}

/** Runs a script that writes, which fails on a replica, on a full server, or without the permission. */
async function opened(client: Client): Promise<void> {
  await client.connect();
  await client.eval("return redis.call('set', KEYS[1], '1', 'EX', 1)", { keys: ['switchboard:trial'] });
}

const within = <T>(ms: number, work: Promise<T>): Promise<T> =>
  raceDeadline(work, ms, () => new Error(`no response within ${ms} ms`));
