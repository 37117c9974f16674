import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Settings } from 'meilisearch';
import { Breaker } from '../../../platform/breaker.ts';
import { settledWithin, slices } from '../../../platform/time.ts';
import { SerialQueue } from '../../../platform/queues.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { OutageLog } from '../../../platform/telemetry/throttled-log.ts';
import type { Embedder } from '../embed/embedder.ts';
import type { VectorSource } from './indexed-servers.ts';
import {
  EMBEDDER,
  EngineError,
  EngineRefused,
  KeyRefused,
  type Engine,
  type EngineDocument,
  type EngineQuery,
} from './meilisearch-engine.ts';
import type { QuantizedVector } from './vectors.ts';

/** Version of the settings below and of the document format: a new number creates a new index. */
const FORMAT = 1;
/** Prefix of every index of this program; the key must allow it. */
const INDEX_PREFIX = 'switchboard-';
/** The engine stops longer searches and returns partial results. */
const SEARCH_CUTOFF_MS = 500;
/** The engine accepts at most 256 vectors per document; the others go into further documents of the same server. */
const VECTORS_OF_A_DOCUMENT = 250;
/** Vectors per request: about half a megabyte. */
const VECTORS_OF_A_REQUEST = 400;
/** The maximum number of requests whose tasks are not awaited yet. */
const TASKS_AHEAD = 8;
/** Deleted ids per request. */
const IDS_OF_A_REQUEST = 1_000;
/** How long a committed change waits for the engine. */
const SETTLE_MS = 2_000;

/** The texts of a server in the engine. */
export interface EngineContent {
  readonly serverId: string;
  /** Terms of the server's name and of its tools' names. */
  readonly names: readonly string[];
  /** All terms of the server. */
  readonly words: readonly string[];
  /** The text of each vector. */
  readonly prose: readonly string[];
}

/** An index, and the hashes of its documents by id. */
interface Held {
  readonly uid: string;
  readonly hashes: Map<string, string>;
}

/** A server that the engine should have, and its documents. */
export interface Planned {
  readonly serverId: string;
  readonly hash: string;
  readonly documentIds: readonly string[];
  /** True if a search by meaning can find it. */
  readonly hasVectors: boolean;
  readonly source: VectorSource;
  /** Reads the content again, because keeping it would double the catalogue in memory. */
  readonly content: () => EngineContent;
}

/** Returns the first characters of a SHA-256 over texts and bytes. */
export function hashOf(values: readonly unknown[], bytes: readonly Int8Array[] = []): string {
  const hash = createHash('sha256').update(JSON.stringify(values));
  for (const one of bytes) hash.update(one);
  return hash.digest('base64url').slice(0, 22);
}

/**
 * Returns the documents of a server.
 * @param vectors one for each text of the content's `prose`; zeros for a missing one
 */
export function plan(
  { serverId, names, words, prose }: EngineContent,
  vectors: readonly QuantizedVector[],
): Omit<Planned, 'source' | 'content'> {
  const count = Math.max(1, Math.ceil(prose.length / VECTORS_OF_A_DOCUMENT));
  return {
    serverId,
    hash: hashOf(
      [names, words, prose],
      vectors.map(({ values }) => values),
    ),
    // Engine ids must not contain dots, and server ids have no capitals.
    documentIds: Array.from({ length: count }, (_, at) => `${serverId.replaceAll('.', 'D')}P${at}`),
    hasVectors: vectors.some(({ scale }) => scale > 0),
  };
}

/** Renders a server's documents. Vectors are sent as whole numbers without their scale, because the engine compares directions. */
function documentsOf(planned: Planned, vectors: readonly QuantizedVector[]): EngineDocument[] {
  const { serverId, names, words } = planned.content();
  return planned.documentIds.map((id, at) => {
    // A zero vector has no direction.
    const own = vectors
      .slice(at * VECTORS_OF_A_DOCUMENT, (at + 1) * VECTORS_OF_A_DOCUMENT)
      .filter(({ scale }) => scale > 0);
    const embeddings = own.map(({ values }) => Array.from(values));
    return {
      id,
      server: serverId,
      hash: planned.hash,
      names: unique(names),
      words: unique(words),
      _vectors: { [EMBEDDER]: { embeddings, regenerate: false } },
    };
  });
}

const unique = (terms: readonly string[]): string => [...new Set(terms)].join(' ');

/**
 * Returns the settings of an index. Words are sent as our own terms: split, folded, stemmed, without stop words. The engine
 * must match them exactly: typo tolerance or prefixes would only find servers without evidence (such as `s4` for `s3`), and
 * misspelt queries are matched by meaning. Positions of terms are meaningless, so proximity is not computed.
 */
const settingsFor = (dimensions: number): Settings => ({
  searchableAttributes: ['names', 'words'],
  filterableAttributes: ['server'],
  sortableAttributes: [],
  displayedAttributes: ['id', 'server', 'hash'],
  rankingRules: ['words', 'attribute'],
  stopWords: [],
  typoTolerance: { enabled: false },
  prefixSearch: 'disabled',
  proximityPrecision: 'byAttribute',
  facetSearch: false,
  searchCutoffMs: SEARCH_CUTOFF_MS,
  embedders: { [EMBEDDER]: { source: 'userProvided', dimensions } },
});

/** The pause before a retry; it doubles up to the maximum. */
export interface RetryTimes {
  readonly firstMs: number;
  readonly lastMs: number;
}

interface SyncParts {
  readonly engine: Engine;
  readonly embedder: Pick<Embedder, 'id' | 'dimensions'>;
  /** Returns the stored vectors of each source's texts. */
  readonly vectorsOf: (sources: readonly VectorSource[]) => Promise<(readonly QuantizedVector[])[]>;
  readonly log: Log;
  readonly retry: RetryTimes;
}

/**
 * Keeps Meilisearch's copy of the catalogue. The additions of a change are sent before it is applied, so that a rejection
 * reaches whoever makes the change. After a start or an outage all documents are compared with the catalogue: missing ones
 * are sent and foreign ones are deleted.
 */
export class MeilisearchSync {
  readonly #parts: SyncParts;
  /** Everything that the engine should have, by server id. */
  readonly #wanted = new Map<string, Planned>();
  /** The documents that the engine is known to have; undefined if it must be listed first. */
  #held: Held | undefined;
  /** True once the engine was compared and is complete, except for pending changes. */
  #isCurrent = false;
  readonly #breaker: Breaker;
  readonly #outage: OutageLog;
  /** The search that failed: it must succeed before the engine is used again. */
  #failedSearch: readonly EngineQuery[] | undefined;
  readonly #work = new SerialQueue();
  #loop: Promise<void> | undefined;
  #isDue = false;
  readonly #closing = new AbortController();

  constructor(parts: SyncParts) {
    this.#parts = parts;
    const { firstMs, lastMs } = parts.retry;
    const times = { firstOpenMs: firstMs, maxOpenMs: lastMs, maxProbeMs: Infinity };
    this.#breaker = new Breaker({ ...times, failuresInARow: 1 });
    this.#outage = new OutageLog(parts.log, 'Meilisearch recovered');
  }

  /** Why the engine is currently not used, in a few words; undefined if it is. */
  get trouble(): string | undefined {
    if (this.#outage.trouble !== undefined) return this.#outage.trouble;
    return this.#isCurrent || this.#wanted.size === 0 ? undefined : 'Meilisearch is still indexing';
  }

  /** Returns the servers of each query's hits; undefined if the engine is unavailable. */
  async search(queries: readonly EngineQuery[]): Promise<string[][] | undefined> {
    const { engine } = this.#parts;
    if (!this.#isCurrent || this.#breaker.isOpen || this.#held?.uid !== this.#uid) return undefined;
    try {
      const found = await engine.search(this.#uid, queries);
      if (this.#isEmptied(queries, found)) throw new Error('Meilisearch does not find the indexed documents');
      return found;
    } catch (error) {
      // A rejected search need not be retried: the index itself must be checked.
      this.#failedSearch = error instanceof EngineRefused ? undefined : queries.slice(0, 1);
      this.#failed(error);
      return undefined;
    }
  }

  /**
   * Sends the additions of a change, unless the engine is unavailable. Resolves with the step to take after the change is
   * applied, which cannot fail. The first change is not sent in advance, so that startup does not wait for the engine.
   * @throws EngineRefused if the engine rejects it
   */
  async prepare(upserted: readonly Planned[], removed: readonly string[]): Promise<() => Promise<void>> {
    if (!this.#breaker.isOpen && this.#wanted.size > 0) await this.#send(upserted);
    return async () => {
      for (const id of removed) this.#wanted.delete(id);
      for (const planned of upserted) this.#wanted.set(planned.serverId, planned);
      this.#converge();
      if (!this.#breaker.isOpen && this.#loop) await settledWithin(this.#loop, SETTLE_MS);
    };
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#parts.engine.close();
    await this.#loop;
    await this.#work.settled();
  }

  /** The index of the current embedder: vectors of different embedders are never mixed. */
  get #uid(): string {
    const { id, dimensions } = this.#parts.embedder;
    const hash = createHash('sha256').update(JSON.stringify([id, dimensions]));
    return `${INDEX_PREFIX}${hash.digest('hex').slice(0, 16)}-v${FORMAT}`;
  }

  /** A list by meaning always has the nearest servers, however far they are: an empty one means that the index was emptied. */
  #isEmptied(queries: readonly EngineQuery[], found: readonly (readonly string[])[]): boolean {
    const isMissed = queries.some(({ vector }, at) => vector !== undefined && found[at]?.length === 0);
    return isMissed && [...this.#wanted.values()].some(({ hasVectors }) => hasVectors);
  }

  async #send(upserted: readonly Planned[]): Promise<void> {
    try {
      await this.#work.run(async () => {
        const held = await this.#known();
        await this.#add(missingOf(upserted, held), held);
      });
    } catch (error) {
      if (!(error instanceof EngineRefused)) return this.#failed(error);
      this.#held = undefined;
      // Rolls back what the engine has already accepted.
      this.#converge();
      throw error;
    }
  }

  /** Brings the engine up to date, with retries. */
  #converge(): void {
    this.#isDue = true;
    this.#loop ??= this.#untilCurrent().finally(() => {
      this.#loop = undefined;
      if (this.#isDue && !this.#closing.signal.aborted) this.#converge();
    });
  }

  async #untilCurrent(): Promise<void> {
    const { signal } = this.#closing;
    while (this.#isDue) {
      const waitMs = this.#breaker.waitMs(performance.now());
      if (waitMs > 0) await delay(Math.ceil(waitMs), undefined, { signal, ref: false }).catch(() => {});
      if (signal.aborted) return;
      this.#isDue = false;
      const call = this.#breaker.enter(performance.now());
      try {
        await this.#work.run(() => this.#catchUp());
        this.#isCurrent = true;
        this.#breaker.succeeded(call, performance.now());
        this.#outage.succeeded();
      } catch (error) {
        this.#breaker.failed(call, performance.now(), '');
        this.#failed(error);
      } finally {
        this.#breaker.leave(call);
      }
    }
  }

  async #catchUp(): Promise<void> {
    for (;;) {
      const held = await this.#known();
      const missing = missingOf([...this.#wanted.values()], held);
      const wantedIds = new Set([...this.#wanted.values()].flatMap(({ documentIds }) => documentIds));
      const surplus = [...held.hashes.keys()].filter(id => !wantedIds.has(id));
      if (missing.length === 0 && surplus.length === 0) break;
      await this.#add(missing, held);
      await this.#delete(surplus, held);
    }
    // An engine may list its documents and still be too slow to search them.
    if (this.#failedSearch) await this.#parts.engine.search(this.#uid, this.#failedSearch);
    this.#failedSearch = undefined;
  }

  #failed(error: unknown): void {
    if (this.#closing.signal.aborted) return;
    this.#held = undefined;
    const trouble = troubleOf(error);
    // The engine's own error messages are complete.
    const said = error instanceof EngineError ? { reason: error.message } : { err: error };
    const message = `${trouble}: the embedded index finds candidates until it recovers`;
    this.#outage.failed(trouble, said, message);
    this.#breaker.trip(performance.now(), trouble);
    this.#converge();
  }

  /** Returns the documents that the index is known to have. Creates the index if there is none. */
  async #known(): Promise<Held> {
    const uid = this.#uid;
    if (this.#held?.uid === uid) return this.#held;
    const { engine, embedder } = this.#parts;
    const hashes = await engine.documentHashes(uid);
    const tasks = hashes === undefined ? [await engine.createIndex(uid)] : [];
    // An operator may have changed the settings; sending equal ones costs the engine nothing.
    tasks.push(await engine.updateSettings(uid, settingsFor(embedder.dimensions)));
    await engine.succeeded(tasks);
    this.#held = { uid, hashes: hashes ?? new Map<string, string>() };
    return this.#held;
  }

  /** Resolves when the engine has accepted all of them; `held` then includes them. */
  async #add(servers: readonly Planned[], { uid, hashes }: Held): Promise<void> {
    const { engine, vectorsOf } = this.#parts;
    const pause = slices();
    const tasks: number[] = [];
    for (const batch of batchesOf(servers)) {
      const vectors = await vectorsOf(batch.map(({ source }) => source));
      const documents = batch.flatMap((planned, at) => documentsOf(planned, vectors[at] ?? []));
      await pause();
      tasks.push(await engine.addDocuments(uid, documents));
      await pause();
      if (tasks.length > TASKS_AHEAD) await engine.succeeded(tasks.splice(0, 1));
    }
    await engine.succeeded(tasks);
    for (const { documentIds, hash } of servers) for (const id of documentIds) hashes.set(id, hash);
  }

  async #delete(ids: readonly string[], { uid, hashes }: Held): Promise<void> {
    const { engine } = this.#parts;
    const tasks: number[] = [];
    for (let at = 0; at < ids.length; at += IDS_OF_A_REQUEST)
      tasks.push(await engine.deleteDocuments(uid, ids.slice(at, at + IDS_OF_A_REQUEST)));
    await engine.succeeded(tasks);
    for (const id of ids) hashes.delete(id);
  }
}

const missingOf = (wanted: readonly Planned[], { hashes }: Held): Planned[] =>
  wanted.filter(({ documentIds, hash }) => documentIds.some(id => hashes.get(id) !== hash));

function* batchesOf(servers: readonly Planned[]): Generator<Planned[]> {
  let batch: Planned[] = [];
  let vectors = 0;
  for (const planned of servers) {
    batch.push(planned);
    vectors += planned.source.texts().length;
    if (vectors < VECTORS_OF_A_REQUEST) continue;
    yield batch;
    batch = [];
    vectors = 0;
  }
  if (batch.length > 0) yield batch;
}

function troubleOf(error: unknown): string {
  if (error instanceof KeyRefused)
    return 'Meilisearch rejected the key, or the key lacks a permission (check MEILISEARCH_API_KEY)';
  return error instanceof EngineRefused ? 'Meilisearch rejected a request' : 'Meilisearch unavailable';
}
