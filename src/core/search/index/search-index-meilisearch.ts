import { SerialQueue } from '../../../platform/queues.ts';
import { pagesOf } from '../../../platform/pages.ts';
import { slices } from '../../../platform/time.ts';
import type { CatalogueChange, OnProgress } from '../../catalogue/catalogue.ts';
import type { Server } from '../../catalogue/entry.ts';
import { tokenize } from '../documents.ts';
import { Evidence, ServerTexts, type Stored } from './evidence/evidence.ts';
import { EvidenceStore } from './evidence/store.ts';
import {
  bestOfEach,
  CANDIDATES_BY_EACH,
  cutoff,
  IndexWithEmbedder,
  openCache,
  type IndexContext,
} from './indexed-catalogue.ts';
import { KnownServers, pagesOfServers, Progress, ServersChange } from './known-servers.ts';
import { EMBEDDER, Engine, type EngineAddress } from './meilisearch-engine.ts';
import { MeilisearchSync, type EngineContent, type RetryTimes } from './meilisearch-sync.ts';
import type { Asked, Candidate, Findings, SearchIndex } from './search-index.ts';
import type { WeighedTerms } from './term-statistics.ts';
import type { VectorCache } from './vector-cache.ts';
import { excessOf, largest, quantize, type QuantizedVector } from './vectors.ts';

/** The engine reads at most this many words of a query. */
const MAX_QUERY_TERMS = 10;
/** The number of terms that are looked up without the engine. */
const MAX_LOOKED_UP_TERMS = 8;
/** Room for the evidence of about 9,000 servers. */
const EVIDENCE_BYTES = 48 * 1024 * 1024;
/** Removed servers whose words are taken away at a time. */
const REMOVED_OF_A_PAGE = 200;
const SERVERS_ONLY = { attributesToRetrieve: ['server'] };
const RETRY: RetryTimes = { firstMs: 1_000, lastMs: 30_000 };

export type MeilisearchAddress = EngineAddress;

interface MeilisearchIndexContext extends MeilisearchAddress, IndexContext {
  /** Returns those of the servers that are in the catalogue, in any order. */
  readonly readServers: (ids: readonly string[]) => Promise<readonly Server[]>;
  readonly retry?: RetryTimes;
  /** Memory for evidence. */
  readonly evidenceBytes?: number;
}

/**
 * Creates an index for which Meilisearch finds the candidates, one list by meaning and one by keyword. Their evidence, words and
 * vectors, is in the database and computed as in the embedded index, so both rank alike. In memory are the keyword statistics,
 * a hash for each server, and recently used evidence. While Meilisearch is unavailable, the candidates are found by keyword in
 * the database, and by both among the servers whose evidence is in memory.
 */
export async function createMeilisearchIndex(context: MeilisearchIndexContext): Promise<MeilisearchIndex> {
  return new MeilisearchIndex(context, await openCache(context));
}

/** A server of a change, with the evidence that is stored for it. */
interface Prepared {
  readonly texts: ServerTexts;
  readonly stored: Stored;
}

/** What is known while a query is answered. */
interface Comparison {
  readonly terms: readonly string[];
  /** The state of the catalogue that the weights and numbers are of. */
  epoch: number;
  weighed: WeighedTerms;
  vectors: readonly QuantizedVector[];
  /** The numbers of candidates by the hash of their evidence; undefined where it cannot be read. */
  readonly compared: Map<string, Compared | undefined>;
  /** Why evidence could not be read. */
  error?: unknown;
}

interface Compared {
  /** By part. */
  readonly cosines: Float32Array;
  readonly words: ReturnType<Evidence['keywords']>;
}

interface PendingSearch {
  readonly limit: number;
  /** Undefined if the engine is unavailable. */
  readonly servers: Promise<readonly string[] | undefined>;
}

class MeilisearchIndex extends IndexWithEmbedder<MeilisearchIndexContext> implements SearchIndex {
  readonly #known = new KnownServers();
  readonly #store: EvidenceStore;
  readonly #sync: MeilisearchSync;
  readonly #restoring = new SerialQueue();
  /** The searches by meaning that the engine has not answered yet, by their vector. */
  readonly #pending = new Map<Float32Array, PendingSearch>();
  #failure: string | undefined;

  constructor(context: MeilisearchIndexContext, cache: VectorCache) {
    super(context, cache);
    const { embedder, log, db, retry = RETRY, evidenceBytes = EVIDENCE_BYTES } = context;
    this.#store = new EvidenceStore(db, evidenceBytes);
    this.#sync = new MeilisearchSync({
      engine: new Engine(context),
      embedder,
      wanted: this.#known.servers,
      contentsOf: async ids => this.#contentsOf(await this.#textsOf(await context.readServers(ids))),
      log,
      retry,
    });
  }

  get id(): string {
    return `meilisearch:${this.embedderId}`;
  }

  get epoch(): number {
    return this.#known.epoch;
  }

  get size(): number {
    return this.#known.servers.size;
  }

  get degraded(): string | undefined {
    return joined(this.engineDegraded, this.embedderDegraded);
  }

  /** The current problem, except for the embedder's. */
  get engineDegraded(): string | undefined {
    return joined(this.#sync.trouble, this.#failure);
  }

  protected frequencyOf(term: string): number {
    return this.#known.statistics.frequencyOf(term);
  }

  neededDocuments(): ReadonlySet<string> | undefined {
    const { servers } = this.#known;
    return servers.size === 0 ? undefined : new Set(Array.from(servers.values(), ({ hash }) => hash));
  }

  /** Reads the servers once, page by page. Only hashes and what a page changes in the statistics are kept of it. */
  async prepare(
    { upserted, removed, whole }: CatalogueChange,
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<() => Promise<void>> {
    const change = new ServersChange(this.#known.servers, hashes => this.#store.wordsOf(hashes));
    const compare = () => this.#sync.compare(change.servers.keys());
    const tasks: number[] = [];
    // An empty index lacks the servers that a change leaves as they are.
    const all = whole?.isAnew || this.size === 0 ? whole : undefined;
    const servers = all?.servers() ?? upserted;
    const progress = new Progress(servers, onProgress);
    try {
      await this.#remove(removed, change);
      for await (const page of pagesOfServers(servers)) {
        const prepared = await this.#prepared(page, progress.ofPage(page), signal);
        await this.#add(
          prepared.map(({ texts: { id }, stored }) => ({ id, stored })),
          change,
        );
        await this.#sendInAdvance(prepared, tasks);
      }
      if (all) await this.#remove(change.untouched(), change);
      await this.#sync.done(tasks);
      signal?.throwIfAborted();
    } catch (error) {
      void compare();
      throw error;
    }
    // Takes back what was sent in advance.
    signal?.addEventListener('abort', () => void compare(), { once: true });
    return () => {
      this.#known.apply(change, whole !== undefined);
      return compare();
    };
  }

  async find({ terms, vectors: embedded }: Asked, count = CANDIDATES_BY_EACH): Promise<Findings> {
    let { replacements } = this.#known;
    const { epoch, statistics } = this.#known;
    const asked: Comparison = {
      terms,
      epoch,
      weighed: statistics.weigh(terms),
      vectors: [],
      compared: new Map(),
    };
    // Meanwhile the query is embedded.
    const searchedByKeyword = this.#byKeyword(asked, count);
    const vectors = await embedded;
    asked.vectors = vectors.map(quantize);
    const [byMeaning, byKeyword] = await Promise.all([this.#byMeaning(vectors, count), searchedByKeyword]);
    let ids = byMeaning && byKeyword && new Set([...byMeaning, ...byKeyword]);
    // Servers that the engine has not deleted yet take the places of others.
    if (ids && [...ids].some(id => !this.#known.servers.has(id)))
      for (const id of await this.#substitutes(asked, count)) ids.add(id);
    for (;;) {
      this.#renew(asked);
      // Candidates from before the catalogue was replaced are useless.
      if (!ids || replacements !== this.#known.replacements) {
        ({ replacements } = this.#known);
        ids = await this.#substitutes(asked, count);
        continue;
      }
      // No await from here on: a query sees every server before or after an update, never half of it.
      const { servers } = this.#known;
      const hashes = new Set(Array.from(ids, id => servers.get(id)?.hash).filter(hash => hash !== undefined));
      const missing = [...hashes].filter(hash => !asked.compared.has(hash));
      if (missing.length === 0) return { candidates: this.#best(ids, asked, count), vectors };
      const gone = await this.#compare(missing, asked);
      if (gone.size > 0) this.#restore([...ids].filter(id => gone.has(servers.get(id)?.hash ?? '')));
    }
  }

  /** After a change of the catalogue, all candidates are compared again: the weights of terms are others, too. */
  #renew(asked: Comparison): void {
    const { epoch, statistics } = this.#known;
    if (asked.epoch === epoch) return;
    asked.epoch = epoch;
    asked.weighed = statistics.weigh(asked.terms);
    for (const [hash, one] of asked.compared) if (one) asked.compared.delete(hash);
  }

  async close(): Promise<void> {
    await this.#restoring.settled();
    await this.#sync.close();
  }

  /** Returns the servers with their evidence, which is stored now. */
  async #prepared(
    servers: readonly Server[],
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<Prepared[]> {
    const all = await this.#textsOf(servers, signal);
    const states = await this.#store.statesOf(all.map(({ hash }) => hash));
    // Another process does not know yet that they are needed. At a start, every process knows them.
    const isNew = ({ id, hash }: ServerTexts) => this.#known.servers.get(id)?.hash !== hash;
    if (this.size > 0) await this.#store.spare(all.filter(isNew).map(({ hash }) => hash));
    const incomplete = all.filter(({ hash }) => !states.get(hash)?.isComplete);
    const made = await this.#made(incomplete, onProgress, signal);
    return all.map(texts => {
      const { hash, prose, tools } = texts;
      const vectorsHash = made.get(hash) ?? states.get(hash)?.vectorsHash ?? 0;
      return { texts, stored: { hash, tools, parts: prose.length, vectorsHash } };
    });
  }

  /** Stores the evidence of servers. Returns the hashes of their vectors. */
  async #made(
    servers: readonly ServerTexts[],
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<Map<string, number>> {
    const { id: embedder, dimensions } = this.context.embedder;
    const pause = slices(signal);
    // Two servers may have the same texts.
    const different = [...new Map(servers.map(texts => [texts.hash, texts])).values()];
    const prose = different.flatMap(texts => texts.prose);
    const vectors = await this.cache.vectorsOf(prose, onProgress, signal);
    const added = [];
    let at = 0;
    for (const { hash, terms, prose: own } of different) {
      const evidence = Evidence.of(terms, vectors.slice(at, (at += own.length)), dimensions);
      added.push({ hash, embedder, evidence });
      await pause();
    }
    await this.#store.add(added);
    return new Map(added.map(({ hash, evidence }) => [hash, evidence.vectorsHash]));
  }

  async #textsOf(servers: readonly Server[], signal?: AbortSignal): Promise<ServerTexts[]> {
    const pause = slices(signal);
    const texts: ServerTexts[] = [];
    for (const server of servers) {
      texts.push(new ServerTexts(server, this.embedderId));
      await pause();
    }
    return texts;
  }

  async #remove(ids: readonly string[], change: ServersChange): Promise<void> {
    for await (const page of pagesOf(ids, REMOVED_OF_A_PAGE, () => 1))
      await this.#add(
        page.map(id => ({ id, stored: undefined })),
        change,
      );
  }

  async #add(page: Parameters<ServersChange['add']>[0], change: ServersChange): Promise<void> {
    const lost = await change.add(page);
    if (lost > 0) this.context.log.warn({ servers: lost }, 'keyword statistics inexact until the next start');
  }

  async #sendInAdvance(prepared: readonly Prepared[], tasks: number[]): Promise<void> {
    const due = prepared.filter(({ texts, stored }) => this.#sync.isDue({ serverId: texts.id, stored }));
    if (due.length === 0) return;
    const storedOf = new Map(due.map(({ texts, stored }) => [texts.id, stored]));
    const contents = await this.#contentsOf(due.map(({ texts }) => texts));
    const sent = contents.flatMap(content => {
      const stored = storedOf.get(content.serverId);
      return stored ? { server: { serverId: content.serverId, stored }, content } : [];
    });
    await this.#sync.send(sent, tasks);
  }

  /** Returns what the engine is to have of servers; without those whose evidence is not stored. */
  async #contentsOf(servers: readonly ServerTexts[]): Promise<EngineContent[]> {
    const { dimensions } = this.context.embedder;
    const pause = slices();
    const found = await this.#store.peek(servers.map(({ hash }) => hash));
    const contents: EngineContent[] = [];
    for (const { id: serverId, hash, names, terms } of servers) {
      const evidence = found.get(hash);
      // Vectors of an earlier model with other dimensions are useless.
      const vectors = evidence?.vectorsWith(dimensions);
      const words = [...terms.whole, ...terms.parts.flat()];
      if (vectors) contents.push({ serverId, hash, names: names.flatMap(tokenize), words, vectors });
      await pause();
    }
    return contents;
  }

  /**
   * Returns the servers with the texts that the engine finds by meaning, with one query per sentence; undefined if it is unavailable.
   * Its time grows with the number of texts, so there are half as many as by keyword, and fewer for each of several sentences. A
   * clause that is a sentence of its request takes the list of that.
   */
  async #byMeaning(vectors: readonly Float32Array[], count: number): Promise<string[] | undefined> {
    const limit = Math.ceil(Math.max(count / 4, count / 2 / vectors.length));
    const others = vectors.filter(vector => (this.#pending.get(vector)?.limit ?? 0) < limit);
    const searched = this.#sync.search(
      others.map(vector => ({
        ...SERVERS_ONLY,
        limit,
        vector: [...quantize(vector).values],
        hybrid: { embedder: EMBEDDER, semanticRatio: 1 },
      })),
    );
    for (const [at, vector] of others.entries())
      this.#pending.set(vector, { limit, servers: searched.then(lists => lists?.[at]) });
    const lists = await Promise.all(vectors.flatMap(vector => this.#pending.get(vector)?.servers ?? []));
    for (const vector of others) this.#pending.delete(vector);
    if ((await searched) === undefined || lists.includes(undefined)) return undefined;
    return lists.flatMap(servers => servers?.slice(0, limit) ?? []);
  }

  /**
   * Returns the servers that the engine finds by keyword, with their evidence in memory; undefined if it is unavailable. The rarest
   * terms come first, because it drops the last ones.
   */
  async #byKeyword(asked: Comparison, count: number): Promise<string[] | undefined> {
    const q = this.#rarest(asked.terms, MAX_QUERY_TERMS).join(' ');
    const query = { ...SERVERS_ONLY, limit: count, q, matchingStrategy: 'last' as const };
    const found = (await this.#sync.search(q === '' ? [] : [query]))?.flat();
    const { servers } = this.#known;
    const hashes = found?.flatMap(id => servers.get(id)?.hash ?? []) ?? [];
    const unread = hashes.filter(hash => !this.#store.isInMemory(hash));
    if (unread.length === 0 || (await this.#reading(() => this.#store.read(unread), asked))) return found;
    // Another attempt would take as long again.
    for (const hash of unread) asked.compared.set(hash, undefined);
    return found;
  }

  /** Returns the terms that fewest parts have, without those that none has. */
  #rarest(terms: readonly string[], max: number): string[] {
    const { statistics } = this.#known;
    return terms
      .map(term => ({ term, frequency: statistics.frequencyOf(term) }))
      .filter(({ frequency }) => frequency > 0)
      .sort((a, b) => a.frequency - b.frequency)
      .slice(0, max)
      .map(({ term }) => term);
  }

  /** Returns the candidates that can be found without the engine. */
  async #substitutes(asked: Comparison, count: number): Promise<Set<string>> {
    const terms = this.#known.statistics.weigh(this.#rarest(asked.terms, MAX_LOOKED_UP_TERMS));
    const weighed = Array.from(terms.hashes, (hash, at) => ({ hash, weight: terms.part.weights[at] ?? 0 }));
    const found = await this.#reading(() => this.#store.withTerms(weighed), asked);
    const ranks = new Map(found?.map((hash, rank) => [hash, rank]));
    const byKeyword: { readonly id: string; readonly rank: number }[] = [];
    const inMemory: { readonly id: string; readonly hash: string }[] = [];
    for (const [id, { hash }] of this.#known.servers) {
      const rank = ranks.get(hash);
      if (rank !== undefined) byKeyword.push({ id, rank });
      if (this.#store.isInMemory(hash)) inMemory.push({ id, hash });
    }
    const best = byKeyword.sort((a, b) => a.rank - b.rank).slice(0, count);
    await this.#compare(
      inMemory.map(({ hash }) => hash).filter(hash => !asked.compared.has(hash)),
      asked,
    );
    const cosines = Float32Array.from(inMemory, ({ hash }) =>
      largest(asked.compared.get(hash)?.cosines ?? []),
    );
    const lowest = cutoff(cosines, count);
    const nearest = inMemory.filter((_server, at) => (cosines[at] ?? 0) >= lowest);
    return new Set([...best, ...nearest].map(({ id }) => id));
  }

  /**
   * Adds the numbers of candidates to what is compared, except for evidence that leaves the memory meanwhile. Returns the hashes of
   * evidence that is not stored any more.
   */
  async #compare(hashes: readonly string[], asked: Comparison): Promise<Set<string>> {
    const { compared, vectors, weighed } = asked;
    const compare = (hash: string, evidence: Evidence) =>
      compared.set(hash, { cosines: evidence.cosines(vectors), words: evidence.keywords(weighed) });
    const unread = hashes.filter(hash => !this.#store.isInMemory(hash));
    const reading =
      unread.length > 0 ? this.#reading(() => this.#store.read(unread, compare), asked) : undefined;
    const pause = slices();
    for (const hash of hashes) {
      const evidence = compared.has(hash) ? undefined : this.#store.recent(hash);
      if (evidence) compare(hash, evidence);
      await pause();
    }
    const read = await reading;
    for (const hash of unread) if (!compared.has(hash)) compared.set(hash, undefined);
    return new Set(read && unread.filter(hash => !read.has(hash)));
  }

  /** Returns the best candidates of these servers. */
  #best(ids: ReadonlySet<string>, { compared, error }: Comparison, count: number): Candidate[] {
    const scored = Array.from(ids).flatMap(serverId => {
      const { hash = '', tools = 0 } = this.#known.servers.get(serverId) ?? {};
      const one = compared.get(hash);
      return one ? { serverId, toolCount: tools, cosines: one.cosines, words: one.words } : [];
    });
    // An empty list would say that nothing fits.
    if (scored.length === 0 && error !== undefined) throw error;
    const semantic = Float32Array.from(scored, ({ cosines }) => largest(cosines));
    const keyword = Float64Array.from(scored, ({ words }) => words.whole + largest(words.parts));
    const candidate = (slot: number): Candidate => {
      const { serverId, toolCount, cosines, words } = scored[slot] ?? unreachable();
      const end = 1 + toolCount;
      const tools = { semantic: cosines.subarray(1, end), keyword: words.parts.subarray(1, end) };
      const best = semantic[slot] ?? 0;
      return {
        serverId,
        texts: cosines.length,
        semantic: best,
        direct: largest(cosines.subarray(0, end)),
        excess: excessOf(best, cosines.subarray(end)),
        keyword: keyword[slot] ?? 0,
        tools,
      };
    };
    return bestOfEach({ semantic, keyword, candidate }, count);
  }

  /** Reads stored evidence. Resolves to undefined, with the error in `asked`, while the database does not respond. */
  async #reading<T>(read: () => Promise<T>, asked: Comparison): Promise<T | undefined> {
    try {
      const value = await read();
      this.#failure = undefined;
      return value;
    } catch (error) {
      asked.error = error;
      if (this.#failure === undefined) this.context.log.warn({ err: error }, UNREADABLE);
      this.#failure = UNREADABLE;
      return undefined;
    }
  }

  /** Stores evidence again that somebody has deleted, in the background. */
  #restore(serverIds: readonly string[]): void {
    if (this.#restoring.size > 0) return;
    const { log, readServers } = this.context;
    const restored = this.#restoring.run(async () => {
      log.warn({ servers: serverIds.length }, 'search evidence missing: will be computed again');
      for await (const page of pagesOfServers(await readServers(serverIds))) await this.#prepared(page);
    });
    restored.catch((error: unknown) => log.warn({ err: error }, 'failed to restore search evidence'));
  }
}

const UNREADABLE = 'search evidence not readable: ranking only what is in memory';

function unreachable(): never {
  throw new Error('every candidate has evidence');
}

function joined(...reasons: readonly (string | undefined)[]): string | undefined {
  const known = reasons.filter(reason => reason !== undefined);
  return known.length === 0 ? undefined : known.join('; ');
}
