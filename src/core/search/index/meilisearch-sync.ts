import { createHash } from 'node:crypto';
import { setImmediate as turn, setTimeout as delay } from 'node:timers/promises';
import type { Settings } from 'meilisearch';
import { Breaker } from '../../../platform/breaker.ts';
import { settledWithin, slices } from '../../../platform/time.ts';
import { SerialQueue } from '../../../platform/queues.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { OutageLog } from '../../../platform/telemetry/throttled-log.ts';
import type { Embedder } from '../embed/embedder.ts';
import type { Stored } from './evidence/evidence.ts';
import {
  EMBEDDER,
  EngineError,
  EngineRefused,
  KeyRefused,
  type Engine,
  type EngineDocument,
  type EngineQuery,
  type ListedDocument,
} from './meilisearch-engine.ts';
import type { QuantizedVector } from './vectors.ts';

/** Version of the settings below and of the document format: a new number creates a new index. */
const FORMAT = 2;
/** Prefix of every index of this program; the key must allow it. */
const INDEX_PREFIX = 'switchboard-';
/** The engine stops longer searches and returns partial results. */
const SEARCH_CUTOFF_MS = 500;
/** Vectors per request: with the local model, less than a megabyte. */
const VECTORS_OF_A_REQUEST = 500;
/** The maximum number of requests whose tasks are not awaited yet. */
const TASKS_AHEAD = 8;
/** Deleted ids per request. */
const IDS_OF_A_REQUEST = 1_000;
/** How long a committed change waits for the engine. */
const SETTLE_MS = 2_000;

/** The content of a server in the engine. */
export interface EngineContent {
  readonly serverId: string;
  /** Identifies its evidence. */
  readonly hash: string;
  /** Terms of the server's name and of its tools' names. */
  readonly names: readonly string[];
  /** All terms of the server. */
  readonly words: readonly string[];
  /** One for each text; zeros for a missing one. */
  readonly vectors: readonly QuantizedVector[];
}

/** A server that the engine should have. */
interface Wanted {
  readonly serverId: string;
  readonly stored: Stored;
}

interface Sent {
  readonly server: Wanted;
  readonly content: EngineContent;
}

/** The documents of a server: those at the positions below `count`, all with one hash; '' if their hashes differ. */
interface HeldDocuments {
  readonly hash: string;
  readonly count: number;
}

/** An index, and its documents once it has done all tasks. */
interface Held {
  readonly uid: string;
  readonly servers: Map<string, HeldDocuments>;
  /** Ids of documents that are not ours. */
  readonly foreign: Set<string>;
}

/** Engine ids must not contain dots, and server ids have no capitals. */
const documentId = (serverId: string, at: number): string => `${serverId.replaceAll('.', 'D')}P${at}`;

/** Returns the server and the position of one of our documents. */
function ownerOf(id: string): { readonly serverId: string; readonly at: number } | undefined {
  const [, name, position] = /^(.+)P(\d+)$/.exec(id) ?? [];
  const owner = { serverId: name?.replaceAll('D', '.') ?? '', at: Number(position) };
  return documentId(owner.serverId, owner.at) === id ? owner : undefined;
}

/**
 * Returns the hash of a server's documents, which also differs when a missing vector is known. One is kept for each server: `join`
 * makes a plain string, where `+` would keep both of its parts, too.
 */
const documentHash = ({ hash, vectorsHash }: Stored): string =>
  [hash.slice(0, 22), (vectorsHash >>> 0).toString(36)].join('.');

/**
 * Renders a server's documents, one for each vector: the engine searches the first, second, … vectors of all documents one after
 * another. Words are in the first. Vectors are sent as whole numbers without their scale, because the engine compares directions.
 */
function rendered({ server, content }: Sent): EngineDocument[] {
  const { serverId, stored } = server;
  const { names, words, vectors } = content;
  return Array.from({ length: stored.parts }, (_, at) => {
    const vector = vectors[at];
    // A zero vector has no direction.
    const embeddings = vector && vector.scale > 0 ? [Array.from(vector.values)] : [];
    return {
      id: documentId(serverId, at),
      server: serverId,
      hash: documentHash(stored),
      names: at === 0 ? unique(names) : '',
      words: at === 0 ? unique(words) : '',
      _vectors: { [EMBEDDER]: { embeddings, regenerate: false } },
    };
  });
}

function isHeld({ serverId, stored }: Wanted, { servers }: Held): boolean {
  const held = servers.get(serverId);
  return held !== undefined && held.hash === documentHash(stored) && held.count >= stored.parts;
}

/** Returns the ids of documents that a server should not have. */
function surplusOf(serverId: string, stored: Stored | undefined, { servers }: Held): string[] {
  const surplus: string[] = [];
  const count = servers.get(serverId)?.count ?? 0;
  for (let at = stored?.parts ?? 0; at < count; at++) surplus.push(documentId(serverId, at));
  return surplus;
}

/** Adds listed documents to what is held. Holes count as differing hashes, so that all are sent again. */
function addListed({ servers, foreign }: Held, page: readonly ListedDocument[]): void {
  for (const { id, hash } of page) {
    const owner = ownerOf(id);
    if (!owner) {
      foreign.add(id);
      continue;
    }
    const { serverId, at } = owner;
    const held = servers.get(serverId);
    const count = Math.max(held?.count ?? 0, at + 1);
    servers.set(serverId, { hash: held && held.hash !== hash ? '' : (held?.hash ?? hash), count });
  }
}

/** The number of documents if none is missing below another. */
function countOf({ servers, foreign }: Held): number {
  let count = foreign.size;
  for (const held of servers.values()) count += held.count;
  return count;
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
  /** Everything that the engine should have, by server id. */
  readonly wanted: ReadonlyMap<string, Stored>;
  /** Reads the current content of servers. It may lack some, or have another hash: those have changed and will be sent then. */
  readonly contentsOf: (serverIds: readonly string[]) => Promise<readonly EngineContent[]>;
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
  /** The documents that the engine is known to have; undefined if it must be listed first. */
  #held: Held | undefined;
  /** The servers whose documents must be compared. */
  #toCompare: Set<string> | 'all' = 'all';
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
    return this.#isCurrent || this.#parts.wanted.size === 0 ? undefined : 'Meilisearch is still indexing';
  }

  /** Returns the servers of each query's hits; undefined if the engine is unavailable. */
  async search(queries: readonly EngineQuery[]): Promise<string[][] | undefined> {
    const { engine } = this.#parts;
    if (!this.#isCurrent || this.#breaker.isOpen || this.#held?.uid !== this.#uid) return undefined;
    if (queries.length === 0) return [];
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
   * Returns whether a server of a change must be sent before the change is applied. The first change is not sent in advance, so
   * that startup does not wait for the engine.
   */
  isDue(server: Wanted): boolean {
    if (this.#breaker.isOpen || this.#parts.wanted.size === 0) return false;
    return this.#held === undefined || !isHeld(server, this.#held);
  }

  /**
   * Sends servers of a change, unless the engine is unavailable.
   * @param tasks those of the change that are not awaited yet
   * @throws EngineRefused if the engine rejects it
   */
  send(servers: readonly Sent[], tasks: number[]): Promise<void> {
    if (servers.length === 0) return Promise.resolve();
    return this.#inAdvance(async () => {
      const held = await this.#known();
      for (const batch of batchesOf(servers, ({ content }) => content.vectors.length))
        await this.#addBatch(batch, held, tasks);
    });
  }

  /**
   * Resolves when the engine has done the tasks of a change, or is unavailable.
   * @throws EngineRefused if one of them failed
   */
  done(tasks: readonly number[]): Promise<void> {
    return this.#inAdvance(() => this.#parts.engine.succeeded(tasks));
  }

  /** Compares the documents of servers with the catalogue. Resolves when they are equal, or after a while. */
  async compare(serverIds: Iterable<string>): Promise<void> {
    if (this.#toCompare !== 'all') for (const id of serverIds) this.#toCompare.add(id);
    this.#converge();
    if (!this.#breaker.isOpen && this.#loop) await settledWithin(this.#loop, SETTLE_MS);
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
    if (!isMissed) return false;
    for (const { vectorsHash } of this.#parts.wanted.values()) if (vectorsHash !== 0) return true;
    return false;
  }

  async #inAdvance(work: () => Promise<void>): Promise<void> {
    try {
      await this.#work.run(work);
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
        // A search may have failed meanwhile.
        if (!this.#breaker.isOpen) this.#outage.succeeded();
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
      const compared = this.#toCompare;
      this.#toCompare = new Set();
      const { missing, surplus } = await this.#differences(compared, held);
      await this.#add(missing, held);
      await this.#delete(surplus, held);
      if (missing.length + surplus.length + this.#toCompare.size === 0) break;
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
    const message = `${trouble}: candidates are found without it until it recovers`;
    this.#outage.failed(trouble, said, message);
    this.#breaker.trip(performance.now(), trouble);
    this.#converge();
  }

  /** Returns the documents that the index is known to have. Creates the index if there is none. */
  async #known(): Promise<Held> {
    const uid = this.#uid;
    if (this.#held?.uid === uid) return this.#held;
    const { engine, embedder } = this.#parts;
    const held: Held = { uid, servers: new Map(), foreign: new Set() };
    let documents = 0;
    const exists = await engine.listDocuments(uid, page => {
      addListed(held, page);
      documents += page.length;
    });
    if (documents < countOf(held)) held.servers.clear();
    const tasks = exists ? [] : [await engine.createIndex(uid)];
    // An operator may have changed the settings; sending equal ones costs the engine nothing.
    tasks.push(await engine.updateSettings(uid, settingsFor(embedder.dimensions)));
    await engine.succeeded(tasks);
    this.#held = held;
    this.#toCompare = 'all';
    return held;
  }

  /** Returns the servers whose documents are missing or outdated, and the ids of documents that should not be there. */
  async #differences(
    compared: ReadonlySet<string> | 'all',
    held: Held,
  ): Promise<{ missing: string[]; surplus: string[] }> {
    const { wanted } = this.#parts;
    const pause = slices();
    const missing: string[] = [];
    const surplus: string[] = [];
    for (const serverId of compared === 'all' ? wanted.keys() : compared) {
      const stored = wanted.get(serverId);
      if (stored && !isHeld({ serverId, stored }, held)) missing.push(serverId);
      if (compared !== 'all') surplus.push(...surplusOf(serverId, stored, held));
      await pause();
    }
    if (compared !== 'all') return { missing, surplus };
    surplus.push(...held.foreign);
    for (const serverId of held.servers.keys()) {
      surplus.push(...surplusOf(serverId, wanted.get(serverId), held));
      await pause();
    }
    return { missing, surplus };
  }

  /** Resolves when the engine has accepted all of them. */
  async #add(serverIds: readonly string[], held: Held): Promise<void> {
    const { engine, wanted, contentsOf } = this.#parts;
    const tasks: number[] = [];
    for (const batch of batchesOf(serverIds, id => wanted.get(id)?.parts ?? 0)) {
      const contents = await contentsOf(batch);
      const servers = contents.flatMap(content => {
        const { serverId, hash } = content;
        const stored = wanted.get(serverId);
        return stored?.hash === hash ? { server: { serverId, stored }, content } : [];
      });
      if (servers.length > 0) await this.#addBatch(servers, held, tasks);
    }
    await engine.succeeded(tasks);
  }

  async #addBatch(servers: readonly Sent[], { uid, servers: held }: Held, tasks: number[]): Promise<void> {
    const { engine } = this.#parts;
    const documents = servers.flatMap(rendered);
    await turn();
    tasks.push(await engine.addDocuments(uid, documents));
    for (const { serverId, stored } of servers.map(({ server }) => server)) {
      const count = Math.max(held.get(serverId)?.count ?? 0, stored.parts);
      held.set(serverId, { hash: documentHash(stored), count });
    }
    await turn();
    if (tasks.length > TASKS_AHEAD) await engine.succeeded(tasks.splice(0, 1));
  }

  async #delete(ids: readonly string[], { uid, servers, foreign }: Held): Promise<void> {
    const { engine } = this.#parts;
    const tasks: number[] = [];
    for (let at = 0; at < ids.length; at += IDS_OF_A_REQUEST)
      tasks.push(await engine.deleteDocuments(uid, ids.slice(at, at + IDS_OF_A_REQUEST)));
    await engine.succeeded(tasks);
    for (const id of ids) {
      foreign.delete(id);
      const owner = ownerOf(id);
      const held = owner && servers.get(owner.serverId);
      if (!held) continue;
      if (owner.at === 0) servers.delete(owner.serverId);
      else servers.set(owner.serverId, { ...held, count: Math.min(held.count, owner.at) });
    }
  }
}

/** Splits servers into requests of so many vectors. */
function* batchesOf<T>(servers: readonly T[], vectorsOf: (server: T) => number): Generator<T[]> {
  let batch: T[] = [];
  let vectors = 0;
  for (const one of servers) {
    batch.push(one);
    vectors += vectorsOf(one);
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
