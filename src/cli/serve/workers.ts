import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import type { Config } from '../../config/index.ts';
import { Breaker, type Entered } from '../../platform/breaker.ts';
import { openLog, type Log } from '../../platform/telemetry/log.ts';
import type { MetricsJson } from '../../platform/telemetry/metrics.ts';
import { WorkerMetrics } from '../../platform/telemetry/metrics-workers.ts';
import { OutageLog, ThrottledLog } from '../../platform/telemetry/throttled-log.ts';
import { Repeat, settledWithin, systemClock } from '../../platform/time.ts';
import { Channel } from '../../platform/workers/channel.ts';
import { closeStranded } from '../../platform/workers/handover.ts';
import { LeaseBook, type LeaseRequest } from '../../platform/workers/leases.ts';
import { MESSAGES, type Failure, type Listening, type News } from '../../platform/workers/seat.ts';
import { CommandFailed } from '../admin-client.ts';
import type { StopSignals } from './signals.ts';
import { WORKER } from './worker.ts';

export interface Introduced {
  readonly url: string | undefined;
  readonly servers: number;
  readonly firstKey: string | undefined;
}

/** A worker that has served for so long has nothing to do with why the one before it ended. */
const STEADY_MS = 60_000;
const RESTARTS = { failuresInARow: 1, firstOpenMs: 100, maxOpenMs: 30_000, maxProbeMs: Infinity };
/** How long a scrape waits for a worker. */
const METRICS_MS = 2_000;
/** After so many unanswered questions a worker is reported, and after so many it is killed. */
const REPORTED_AFTER = 2;
const KILLED_AFTER = 12;

export interface WorkerTimes {
  /** How often each worker is asked whether it is alive. */
  readonly askEveryMs: number;
  /** How long a worker may take to stop, besides `SWITCHBOARD_DRAIN_MS`. */
  readonly stopMs: number;
}

/** A worker cuts off its calls after 10 s and then writes its counts. Service managers are told to allow 30 s. */
const TIMES: WorkerTimes = { askEveryMs: 5_000, stopMs: 25_000 };

/**
 * Serves with several worker processes on one port until `stop` aborts, then lets their running calls finish. A worker that
 * ends is started again, and one that hangs is killed. The first worker starts alone, because it may have the data folder and the
 * database to prepare.
 * @param introduce called once all workers listen
 * @param times for tests that would otherwise wait for long
 * @throws CommandFailed with the reason of the first worker that cannot start, and the reason of the signal if it aborts before
 */
export async function serveWithWorkers(
  { http, log: settings }: Pick<Config, 'http' | 'log'>,
  { stop, kill }: StopSignals,
  introduce: (program: Introduced) => void,
  { askEveryMs, stopMs } = TIMES,
): Promise<void> {
  const log = openLog(settings);
  await using workers = new Workers(http.workers, log, { askEveryMs, stopMs: http.drainMs + stopMs });
  kill.addEventListener('abort', () => workers.kill());
  const { firstKey, ...listening } = await workers.start(stop);
  introduce({ ...listening, firstKey });
  if (!stop.aborted) await once(stop, 'abort');
  log.info('stopping all workers');
}

class Workers implements AsyncDisposable {
  readonly #seats: readonly Seat[];
  readonly #leases: LeaseBook;
  readonly #metrics = new WorkerMetrics();
  readonly #checks: Repeat;
  readonly #lost: ThrottledLog;

  constructor(count: number, log: Log, times: WorkerTimes) {
    this.#lost = new ThrottledLog(log, systemClock);
    this.#leases = new LeaseBook(count);
    this.#seats = Array.from(
      { length: count },
      (_, at) =>
        new Seat(at + 1, {
          log,
          connect: (channel, seat) => this.#connect(channel, seat),
          metrics: this.#metrics,
          times,
          lost: this.#lost,
        }),
    );
    this.#checks = new Repeat(times.askEveryMs, () => {
      for (const seat of this.#seats) seat.check();
    });
  }

  /** Starts all workers. No key is created before all of them listen, because it is shown only once. */
  async start(stop: AbortSignal): Promise<Introduced> {
    const [first, ...others] = this.#seats;
    if (!first) throw new Error('no workers');
    const aborted = new Promise<never>((_, reject) =>
      stop.addEventListener('abort', () => reject(stop.reason as Error), { once: true }),
    );
    aborted.catch(() => {});
    const listening = await Promise.race([first.start(), aborted]);
    await Promise.race([Promise.all(others.map(seat => seat.start())), aborted]);
    stop.throwIfAborted();
    const firstKey = await first.channel?.ask<string>(MESSAGES.firstKey);
    for (const seat of this.#seats) seat.keepRunning();
    this.#checks.start();
    return { ...listening, firstKey };
  }

  kill(): void {
    for (const seat of this.#seats) seat.kill();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#checks.stop();
    await Promise.all(this.#seats.map(seat => seat.stop()));
    await this.#leases.close();
  }

  #connect(channel: Channel, from: Seat): void {
    channel
      .on(MESSAGES.lease, (request: LeaseRequest) => this.#leases.lease(request))
      .on(MESSAGES.metrics, () => this.#text())
      .on(MESSAGES.news, (news: News) => {
        for (const seat of this.#seats) if (seat !== from) seat.channel?.tell(MESSAGES.news, news);
      });
  }

  #text(): Promise<string> {
    const asked = this.#seats.flatMap(({ number, channel }) => {
      const answer = channel?.ask<MetricsJson>(MESSAGES.metrics, undefined, METRICS_MS);
      return answer ? [[number, answer] as const] : [];
    });
    return this.#metrics.text(new Map(asked), this.#seats.length);
  }
}

interface SeatOptions {
  readonly log: Log;
  readonly metrics: WorkerMetrics;
  /** Called with the channel of each process that takes the seat. */
  readonly connect: (channel: Channel, seat: Seat) => void;
  readonly times: WorkerTimes;
  /** Warns of connections that a worker could not receive. */
  readonly lost: ThrottledLog;
}

const LOST =
  'closed a connection, because the worker has run out of file descriptors: raise the limit of open files (ulimit -n)';

/** The place of one worker, which one process after another may take. */
class Seat {
  readonly number: number;
  /** The channel of the process that listens; undefined while there is none. */
  channel: Channel | undefined;
  readonly #options: SeatOptions;
  readonly #restarts = new Breaker(RESTARTS);
  readonly #stopping = new AbortController();
  #entered: Entered = { atMs: 0, probes: false };
  #process: Worker | undefined;
  #toProcess: Channel | undefined;
  #ended: Promise<unknown> = Promise.resolve();
  #isKept = false;
  #silence: OutageLog;
  /** How often the process was asked whether it is alive since it last answered. */
  #unanswered = 0;

  constructor(number: number, options: SeatOptions) {
    this.number = number;
    this.#options = options;
    this.#silence = new OutageLog(options.log.child({ worker: number }), 'worker answers again');
  }

  /** Starts a process and waits until it listens. @throws CommandFailed if it ends before */
  async start(): Promise<Listening> {
    this.#entered = this.#restarts.enter(performance.now());
    // Workers differ only in the arguments after the program's path.
    cluster.setupPrimary({ args: [WORKER, String(this.number)] });
    const worker = cluster.fork();
    // A process that cannot be started emits more than the error that ends it here.
    worker.on('error', () => {});
    const { log, lost } = this.#options;
    closeStranded(worker.process, () => lost.warn({ worker: this.number }, LOST));
    this.#silence = new OutageLog(log.child({ worker: this.number }), 'worker answers again');
    const listening = Promise.withResolvers<Listening>();
    let failure: Failure | undefined;
    const channel = new Channel(message => void worker.send(message, undefined, () => {}))
      .on(MESSAGES.failed, (why: Failure) => (failure = why))
      .on(MESSAGES.listening, (started: Listening) => {
        this.channel = channel;
        listening.resolve(started);
      });
    this.#options.connect(channel, this);
    this.#process = worker;
    this.#toProcess = channel;
    this.#unanswered = 0;
    worker.on('message', (message: unknown) => channel.receive(message));
    this.#ended = endOf(worker).then(how => {
      channel.close();
      this.channel = undefined;
      this.#options.metrics.ended(this.number);
      const why = failure?.detail ?? `Worker ${this.number} ended with ${how}`;
      listening.reject(new CommandFailed(failure ? why : `${why} before it was ready.`, failure?.code));
      if (this.#isKept) this.#onEnd(why);
    });
    return listening.promise;
  }

  /** From now on a process that ends is replaced. */
  keepRunning(): void {
    this.#isKept = true;
    if (this.#process?.isDead()) this.#onEnd(`Worker ${this.number} ended`);
  }

  /** Lets the process finish what it is doing, and waits until it has ended. */
  async stop(): Promise<void> {
    const { log, times } = this.#options;
    this.#stopping.abort();
    this.#toProcess?.tell(MESSAGES.stop);
    if (await settledWithin(this.#ended, times.stopMs)) return;
    log.warn({ worker: this.number, waitedMs: times.stopMs }, 'killed a worker that did not stop');
    this.kill();
    await this.#ended;
  }

  kill(): void {
    this.#stopping.abort();
    this.#process?.process.kill('SIGKILL');
  }

  /**
   * Asks the process whether it is alive. One that leaves many questions in a row unanswered is killed, and so replaced.
   * Questions are counted, not time, because a machine that was suspended must not lose its healthy workers.
   */
  check(): void {
    const channel = this.#toProcess;
    if (!channel || channel.isClosed) return;
    const waitedMs = this.#unanswered * this.#options.times.askEveryMs;
    if (this.#unanswered === KILLED_AFTER) {
      this.#options.log.error({ worker: this.number, waitedMs }, 'killed a worker that does not answer');
      this.#process?.process.kill('SIGKILL');
    } else if (this.#unanswered >= REPORTED_AFTER)
      this.#silence.failed('worker does not answer', { waitedMs });
    this.#unanswered++;
    void channel.ask<boolean>(MESSAGES.alive).then(isAlive => {
      if (isAlive !== true) return;
      this.#unanswered = 0;
      this.#silence.succeeded();
    });
  }

  #onEnd(reason: string): void {
    const { log } = this.#options;
    const worker = this.number;
    if (this.#stopping.signal.aborted) {
      if (this.#process?.process.exitCode !== 0) log.error({ worker, reason }, 'worker failed to stop');
      return;
    }
    const nowMs = performance.now();
    if (nowMs - this.#entered.atMs > STEADY_MS) this.#restarts.succeeded(this.#entered, nowMs);
    this.#restarts.failed(this.#entered, nowMs, reason);
    const restartInMs = Math.round(this.#restarts.waitMs(nowMs));
    log.error({ worker, reason, restartInMs }, 'worker ended unexpectedly');
    void this.#restartIn(restartInMs);
  }

  async #restartIn(ms: number): Promise<void> {
    await delay(ms, undefined, { signal: this.#stopping.signal }).catch(() => {});
    if (this.#stopping.signal.aborted) return;
    this.#options.metrics.restarted();
    // If it ends before it listens, the next restart is already due.
    const listening = await this.start().catch(() => undefined);
    if (listening) this.#options.log.info({ worker: this.number }, 'worker restarted');
  }
}

/** Resolves with how a process ended, or why it could not be started. Never rejects. */
const endOf = (worker: Worker): Promise<string> =>
  once(worker, 'exit').then(
    ([code, signal]: unknown[]) =>
      typeof signal === 'string' && signal !== '' ? signal : `code ${String(code)}`,
    (error: unknown) => String(error),
  );
