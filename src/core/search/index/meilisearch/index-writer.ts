import { slices } from '../../../../platform/yield.ts';
import { randomBytes } from 'node:crypto';
import type { Server } from '../../../catalogue/entry.ts';
import type { Embedder } from '../../embed/embedder.ts';
import type { VectorSource } from '../indexed-servers.ts';
import { EngineRefused, type Engine } from './engine.ts';
import { writeDocuments, type EngineContent, type EngineDocuments } from './engine-document.ts';
import type { PartVectors } from './part-vectors.ts';
import { indexUidOf, settingsFor } from './settings.ts';

/** A server, and the documents that stand for it. */
export interface Planned extends EngineDocuments {
  readonly server: Server;
  readonly source: VectorSource;
  /** What they hold, read anew: held ready it would double the catalogue in memory. */
  content(): EngineContent;
}
/** By server id. */
export type Wanted = ReadonlyMap<string, Planned>;

/** An index that is whole, but not live yet. */
export interface Built {
  readonly uid: string;
  readonly hashes: Map<string, string>;
}

interface LiveIndexParts {
  readonly engine: Engine;
  readonly embedder: Pick<Embedder, 'id' | 'dimensions'>;
  readonly vectors: PartVectors;
  /** Of this process and its restarts: what a crash of it left behind is its to delete. */
  readonly owner: string;
  readonly now: () => number;
}

/** Vectors of one request: about half a megabyte. */
const VECTORS_OF_A_REQUEST = 400;
/** Requests whose tasks are not waited for yet. */
const TASKS_AHEAD = 8;
/** Deleted ids of one request. */
const IDS_OF_A_REQUEST = 1_000;
/** From this share of new documents on, a second index is built and swapped in. */
const REBUILD_FROM = 0.5;
/** An unfinished index of another process that nobody has written to for so long belongs to nobody. */
const ABANDONED_AFTER_MS = 3_600_000;

/** The engine's index of one embedder's vectors, and what this process knows it to hold. Calls must not overlap. */
export class LiveIndex {
  readonly uid: string;
  readonly #parts: LiveIndexParts;
  /** Hashes by document id; undefined: to be asked. */
  #held: Map<string, string> | undefined;

  constructor(parts: LiveIndexParts) {
    this.#parts = parts;
    this.uid = indexUidOf(parts.embedder);
  }

  /**
   * Adds what is wanted and not there, and takes nothing away. Where that is most of it, a second index is built and
   * returned, for `swapIn`; the live one then stays as it is.
   */
  prepare(wanted: Wanted): Promise<Built | undefined> {
    return this.#carefully(async () => {
      const held = (this.#held ??= await this.#look());
      const missing = missingOf(wanted, held);
      if (isMost(missing, wanted)) return this.#build(wanted);
      await this.#add(this.uid, missing, held);
      return undefined;
    });
  }

  /** Makes the index hold exactly what is wanted, also what becomes so meanwhile. */
  converge(wanted: Wanted): Promise<void> {
    return this.#carefully(async () => {
      for (;;) {
        const held = (this.#held ??= await this.#look());
        const missing = missingOf(wanted, held);
        const surplus = surplusOf(wanted, held);
        if (missing.length === 0 && surplus.length === 0) return;
        if (isMost(missing, wanted)) {
          await this.#swapIn(await this.#build(wanted));
        } else {
          await this.#add(this.uid, missing, held);
          await this.#delete(surplus, held);
        }
      }
    });
  }

  /** Puts a built index in the place of the live one, for all searches at the same moment. */
  swapIn(built: Built): Promise<void> {
    return this.#carefully(() => this.#swapIn(built));
  }

  /** How many documents the engine has more than it was given: below 0, it has lost some; above, others may be adding theirs. */
  async excess(): Promise<number> {
    const held = this.#held?.size;
    return held === undefined ? 0 : (await this.#parts.engine.documentCount(this.uid)) - held;
  }

  /** What the engine holds is not known any more. */
  forget(): void {
    this.#held = undefined;
  }

  async #carefully<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      this.forget();
      throw error;
    }
  }

  /** Readies the index, made if need be, and asks what it holds. */
  async #look(): Promise<Map<string, string>> {
    const { engine, embedder } = this.#parts;
    const held = await engine.documentHashes(this.uid);
    const settings = settingsFor(embedder.dimensions);
    const tasks = held === undefined ? [await engine.createIndex(this.uid)] : [];
    // An operator may have changed them; the same again costs the engine nothing.
    tasks.push(await engine.updateSettings(this.uid, settings));
    tasks.push(...(await this.#deleteLeftovers()));
    await engine.succeeded(tasks);
    return held ?? new Map();
  }

  async #deleteLeftovers(): Promise<number[]> {
    const { engine, now } = this.#parts;
    const tasks: number[] = [];
    for (const { uid, updatedAt } of await engine.indexes()) {
      if (!uid.startsWith(`${this.uid}-build-`)) continue;
      const isAbandoned = now() - updatedAt.getTime() > ABANDONED_AFTER_MS;
      if (uid.startsWith(this.#ownBuilds()) || isAbandoned) tasks.push(await engine.deleteIndex(uid));
    }
    return tasks;
  }

  #ownBuilds(): string {
    return `${this.uid}-build-${this.#parts.owner}-`;
  }

  async #build(wanted: Wanted): Promise<Built> {
    const { engine, embedder } = this.#parts;
    await engine.succeeded(await this.#deleteLeftovers());
    const uid = `${this.#ownBuilds()}${randomBytes(4).toString('hex')}`;
    const hashes = new Map<string, string>();
    await engine.succeeded([
      await engine.createIndex(uid),
      await engine.updateSettings(uid, settingsFor(embedder.dimensions)),
    ]);
    await this.#add(uid, [...wanted.values()], hashes);
    return { uid, hashes };
  }

  /** Tasks of an index are worked off in their order: when the deletion is done, so is the swap before it. */
  async #swapIn({ uid, hashes }: Built): Promise<void> {
    const { engine } = this.#parts;
    await engine.swapIndexes(uid, this.uid);
    await engine.succeeded([await engine.deleteIndex(uid)]);
    this.#held = await engine.documentHashes(this.uid);
    if (this.#held === undefined || !isSame(this.#held, hashes))
      throw new EngineRefused('Meilisearch did not swap in the index that was built');
  }

  /** Resolves when the engine has taken all of them; `hashes` then says so. */
  async #add(uid: string, servers: readonly Planned[], hashes: Map<string, string>): Promise<void> {
    const { engine, vectors } = this.#parts;
    const pause = slices();
    const tasks: number[] = [];
    for (const batch of batchesOf(servers)) {
      const vectorsOf = await vectors.of(batch.map(({ source }) => source));
      const documents = batch.flatMap((planned, at) =>
        writeDocuments(planned.content(), vectorsOf[at] ?? []),
      );
      await pause();
      tasks.push(await engine.addDocuments(uid, documents));
      await pause();
      if (tasks.length > TASKS_AHEAD) await engine.succeeded(tasks.splice(0, 1));
    }
    await engine.succeeded(tasks);
    for (const { ids, hash } of servers) for (const id of ids) hashes.set(id, hash);
  }

  async #delete(ids: readonly string[], held: Map<string, string>): Promise<void> {
    const { engine } = this.#parts;
    const tasks: number[] = [];
    for (let at = 0; at < ids.length; at += IDS_OF_A_REQUEST)
      tasks.push(await engine.deleteDocuments(this.uid, ids.slice(at, at + IDS_OF_A_REQUEST)));
    await engine.succeeded(tasks);
    for (const id of ids) held.delete(id);
  }
}

const isSame = (held: ReadonlyMap<string, string>, hashes: ReadonlyMap<string, string>): boolean =>
  held.size === hashes.size && [...hashes].every(([id, hash]) => held.get(id) === hash);

const missingOf = (wanted: Wanted, held: ReadonlyMap<string, string>): Planned[] =>
  [...wanted.values()].filter(({ ids, hash }) => ids.some(id => held.get(id) !== hash));

function surplusOf(wanted: Wanted, held: ReadonlyMap<string, string>): string[] {
  const known = new Set([...wanted.values()].flatMap(({ ids }) => ids));
  return [...held.keys()].filter(id => !known.has(id));
}

const isMost = (missing: readonly Planned[], wanted: Wanted): boolean =>
  missing.length > 0 && missing.length >= REBUILD_FROM * wanted.size;

function* batchesOf(servers: readonly Planned[]): Generator<Planned[]> {
  let batch: Planned[] = [];
  let vectors = 0;
  for (const planned of servers) {
    batch.push(planned);
    vectors += 1 + planned.server.tools.length;
    if (vectors < VECTORS_OF_A_REQUEST) continue;
    yield batch;
    batch = [];
    vectors = 0;
  }
  if (batch.length > 0) yield batch;
}
