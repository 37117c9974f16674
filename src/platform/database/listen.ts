import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'pg';
import type { Log } from '../telemetry/log.ts';
import { OutageLog, reasonOf } from '../telemetry/throttled-log.ts';

const CONNECT_TIMEOUT_MS = 5_000;
const RETRY_MS = 500;

interface ListenOptions {
  /** A Postgres URL. A pooler that shares sessions between clients forwards no notifications. */
  readonly url: string;
  readonly channel: string;
  readonly log: Log;
  /** Called on a notification, and whenever one may have been missed. Must not throw. */
  readonly onNotice: () => void;
  readonly retryMs?: number;
}

/** Listens (LISTEN) on a separate connection, which is reopened whenever it is lost. Nothing waits for it. */
export class Listening implements AsyncDisposable {
  readonly #options: ListenOptions;
  readonly #closing = new AbortController();
  readonly #running: Promise<void>;
  readonly #outage: OutageLog;

  constructor(options: ListenOptions) {
    this.#options = options;
    this.#outage = new OutageLog(options.log, 'listening for changes of other processes again');
    this.#running = this.#stayConnected();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort();
    await this.#running;
  }

  async #stayConnected(): Promise<void> {
    const { signal } = this.#closing;
    const { retryMs = RETRY_MS } = this.#options;
    while (!signal.aborted) {
      try {
        await this.#listen(signal);
      } catch (error) {
        if (!signal.aborted) this.#outage.failed(LOST, { reason: reasonOf(error) });
      }
      await delay(retryMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  /** Rejects if the connection is lost or could not be opened; resolves when this is closed. */
  async #listen(signal: AbortSignal): Promise<void> {
    const { url, channel, onNotice } = this.#options;
    const client = new Client({
      connectionString: url,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      application_name: 'switchboard-listen',
      keepAlive: true,
      keepAliveInitialDelayMillis: 10_000,
    });
    const { promise: ended, resolve: close, reject: lose } = Promise.withResolvers<void>();
    client.on('error', lose);
    client.on('end', () => lose(new Error('the connection was closed')));
    client.on('notification', () => onNotice());
    signal.addEventListener('abort', () => close(), { once: true });
    try {
      await Promise.race([
        ended,
        client.connect().then(() => client.query(`listen ${client.escapeIdentifier(channel)}`)),
      ]);
      this.#outage.succeeded();
      // Notifications sent before this point were missed.
      onNotice();
      await ended;
    } finally {
      await client.end().catch(() => {});
    }
  }
}

const LOST = 'cannot listen for changes of other processes: polling every few seconds';
