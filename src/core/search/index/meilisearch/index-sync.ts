import { setTimeout } from 'node:timers/promises';
import type { Log } from '../../../../platform/telemetry/log.ts';
import { EngineError, EngineRefused, KeyRefused, type Engine, type EngineQuery } from './engine.ts';
import type { Built, LiveIndex, Planned } from './index-writer.ts';

/**
 * Counts in a row with the same number of documents too many after which they are taken for left over: while another process
 * adds some, the number changes, and once it is done they are ours too.
 */
const COUNTS_OF_LEFTOVERS = 6;
/** How long a change in effect waits for the engine to be done with it. */
const SETTLE_MS = 2_000;

export interface RetryTimes {
  readonly firstMs: number;
  readonly lastMs: number;
  /** Between two looks at what the engine holds while it answers: others may write to it, or restore it to what it was. */
  readonly checkMs: number;
  /** … and between two looks at how many documents it has. */
  readonly countMs: number;
}

interface ReplicaParts {
  readonly engine: Engine;
  readonly live: LiveIndex;
  readonly log: Log;
  readonly retry: RetryTimes;
}

/**
 * The catalogue as Meilisearch has it. A change is sent before it takes effect, so that what the engine refuses is refused
 * to whoever made it. What the engine missed while it was down it is given once it is back: then what it holds is compared
 * with what it should hold, until both are the same.
 */
export class Replica {
  readonly #parts: ReplicaParts;
  /** What the engine should hold, by server id. */
  readonly #wanted = new Map<string, Planned>();
  /** Whether the engine has held what it should since it was looked at last, but for what is just being changed. */
  #isCurrent = false;
  #built: Built | undefined;
  #trouble: string | undefined;
  /** The search that failed: it has to work before others are asked. */
  #probe: readonly EngineQuery[] | undefined;
  /** Work on the index runs one after another. */
  #working: Promise<unknown> = Promise.resolve();
  #loop: Promise<void> | undefined;
  #isDue = false;
  /** Before the next try: longer each time, until a search works again. */
  #pauseMs: number;
  readonly #checking: readonly NodeJS.Timeout[];
  /** At the last count, and how many counts in a row it has been the same. */
  #excess = 0;
  #countsOfExcess = 0;
  readonly #closed = new AbortController();

  constructor(parts: ReplicaParts) {
    this.#parts = parts;
    this.#pauseMs = parts.retry.firstMs;
    const { checkMs, countMs } = parts.retry;
    this.#checking = [
      setInterval(() => this.#check(), checkMs).unref(),
      setInterval(() => void this.#count(), countMs).unref(),
    ];
  }

  /** Why the engine is not asked at the moment, in a few words; undefined when it is. */
  get trouble(): string | undefined {
    return (
      this.#trouble ?? (this.#isCurrent || this.#wanted.size === 0 ? undefined : 'Meilisearch is catching up')
    );
  }

  /** The servers of each query's hits; undefined when the engine cannot be asked. */
  async search(queries: readonly EngineQuery[]): Promise<string[][] | undefined> {
    if (!this.#isCurrent || this.#trouble !== undefined) return undefined;
    const { engine, live, retry } = this.#parts;
    try {
      const found = await engine.search(live.uid, queries);
      if (this.#isForeign(queries, found)) throw new Error('Meilisearch finds nothing of what it was given');
      this.#pauseMs = retry.firstMs;
      return found;
    } catch (error) {
      live.forget();
      // A refused one need not work: it is the index that has to be looked at.
      this.#probe = error instanceof EngineRefused ? undefined : queries.slice(0, 1);
      this.#failed(error);
      this.#converge();
      return undefined;
    }
  }

  /**
   * Sends what a change adds, unless the engine is out of reach. Resolves with the step to be taken when the change is in
   * effect, which does not fail. The first change of all is not sent before: nothing has to be kept as it was, and a start
   * has not to wait for the engine.
   * @throws EngineRefused when the engine does not take it.
   */
  async prepare(upserted: readonly Planned[], removed: readonly string[]): Promise<() => Promise<void>> {
    const isSent = this.#trouble === undefined && this.#wanted.size > 0;
    const built = isSent ? await this.#send(upserted, removed) : undefined;
    return () => {
      for (const id of removed) this.#wanted.delete(id);
      for (const planned of upserted) this.#wanted.set(planned.server.id, planned);
      this.#built = built;
      if (built) this.#isCurrent = false;
      this.#converge();
      return this.#settled();
    };
  }

  async #send(upserted: readonly Planned[], removed: readonly string[]): Promise<Built | undefined> {
    const wanted = new Map(this.#wanted);
    for (const id of removed) wanted.delete(id);
    for (const planned of upserted) wanted.set(planned.server.id, planned);
    try {
      return await this.#exclusively(() => this.#parts.live.prepare(wanted));
    } catch (error) {
      if (!(error instanceof EngineRefused)) this.#failed(error);
      // Also takes back what the engine did take of it.
      this.#converge();
      if (error instanceof EngineRefused) throw error;
      return undefined;
    }
  }

  async close(): Promise<void> {
    for (const timer of this.#checking) clearInterval(timer);
    this.#closed.abort();
    this.#parts.engine.close();
    await this.#loop;
    await this.#working;
  }

  /** Whether a list by meaning, which has the nearest servers however far they are, has none of those it must have. */
  #isForeign(queries: readonly EngineQuery[], found: readonly (readonly string[])[]): boolean {
    const isMissed = ({ vector }: EngineQuery, at: number) =>
      vector !== undefined && !found[at]?.some(id => this.#wanted.has(id));
    return queries.some(isMissed) && [...this.#wanted.values()].some(({ hasVectors }) => hasVectors);
  }

  #check(): void {
    if (this.trouble !== undefined || this.#loop) return;
    this.#parts.live.forget();
    this.#converge();
  }

  /** Documents that others deleted are missed here, and those that others left there found; then the engine is given its own again. */
  async #count(): Promise<void> {
    if (this.trouble !== undefined || this.#loop) return;
    const { live, log } = this.#parts;
    // An engine that cannot be asked shows in a search, or in the next look.
    const excess = await this.#exclusively(() => live.excess()).catch(() => 0);
    this.#countsOfExcess = excess > 0 && excess === this.#excess ? this.#countsOfExcess + 1 : 0;
    this.#excess = excess;
    const isLeftOver = this.#countsOfExcess >= COUNTS_OF_LEFTOVERS;
    if ((excess >= 0 && !isLeftOver) || this.trouble !== undefined) return;
    log.warn(
      `Meilisearch has ${isLeftOver ? 'documents of nobody' : 'lost documents'}: its own are compared`,
    );
    this.#isCurrent = false;
    live.forget();
    this.#converge();
  }

  #exclusively<T>(work: () => Promise<T>): Promise<T> {
    const running = this.#working.then(work);
    this.#working = running.catch(() => {});
    return running;
  }

  /** Sees to it that the engine comes to hold what it should, sooner or later. */
  #converge(): void {
    this.#isDue = true;
    this.#loop ??= this.#untilCurrent().finally(() => {
      this.#loop = undefined;
      if (this.#isDue && !this.#closed.signal.aborted) this.#converge();
    });
  }

  async #untilCurrent(): Promise<void> {
    const { signal } = this.#closed;
    while (this.#isDue) {
      if (this.#trouble !== undefined) {
        await setTimeout(this.#pauseMs, undefined, { signal, ref: false }).catch(() => {});
        this.#pauseMs = Math.min(2 * this.#pauseMs, this.#parts.retry.lastMs);
      }
      if (signal.aborted) return;
      this.#isDue = false;
      try {
        await this.#exclusively(() => this.#catchUp());
        this.#recovered();
      } catch (error) {
        this.#isDue = true;
        this.#failed(error);
      }
    }
  }

  async #catchUp(): Promise<void> {
    const { engine, live } = this.#parts;
    const built = this.#built;
    this.#built = undefined;
    if (built) await live.swapIn(built);
    await live.converge(this.#wanted);
    // An engine may list what it holds and yet be too slow to search it.
    if (this.#probe) await engine.search(live.uid, this.#probe);
    this.#probe = undefined;
  }

  #recovered(): void {
    this.#isCurrent = true;
    if (this.#trouble === undefined) return;
    this.#trouble = undefined;
    this.#parts.log.info('Meilisearch is used again');
  }

  #failed(error: unknown): void {
    if (this.#closed.signal.aborted) return;
    const before = this.#trouble;
    this.#trouble = troubleOf(error);
    if (this.#trouble === before) return;
    // Of an error of the engine's, its words say all.
    const said = error instanceof EngineError ? { reason: error.message } : { err: error };
    this.#parts.log.warn(said, `${this.#trouble}: candidates are found in this process until it is back`);
  }

  /** Resolves when the engine is current, or is not going to be soon. */
  async #settled(): Promise<void> {
    const deadline = new AbortController();
    await Promise.race([
      this.#trouble === undefined ? this.#loop : undefined,
      setTimeout(SETTLE_MS, undefined, { signal: deadline.signal }).catch(() => {}),
    ]);
    deadline.abort();
  }
}

function troubleOf(error: unknown): string {
  if (error instanceof KeyRefused)
    return 'Meilisearch refuses the key, or it lacks a right (check MEILISEARCH_API_KEY)';
  return error instanceof EngineRefused ? 'Meilisearch refuses what it is sent' : 'Meilisearch unavailable';
}
