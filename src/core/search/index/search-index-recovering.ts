import type { Database } from '../../../platform/database/database.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { slices } from '../../../platform/yield.ts';
import { withoutSpan } from '../../../platform/telemetry/tracing.ts';
import type { CatalogueChange } from '../../catalogue/catalogue.ts';
import type { Server } from '../../catalogue/entry.ts';
import { documentsOf, type Described } from '../documents.ts';
import type { Embedder } from '../embed/embedder.ts';
import type { EmbeddingApi, RemoteEmbedder } from '../embed/embedder-openai.ts';
import type { Findings, SearchIndex, ToolEvidence } from './search-index.ts';
import { VectorCache } from './vector-cache.ts';

interface RecoveringIndexParts {
  readonly api: EmbeddingApi;
  /** An empty index over an embedder. */
  readonly createIndex: (embedder: Embedder) => Promise<SearchIndex>;
  /** Every active server. */
  readonly active: () => Iterable<Server>;
  /** Has every active server prepared by the given step, between two other changes (see `Catalogue.reindex`). */
  readonly reindex: (prepare: SearchIndex['prepare']) => Promise<void>;
  readonly db: Database;
  readonly log: Log;
}

/** After an error that is not the API's, such as the database's. */
const RETRY_MS = 30_000;
const OTHER_MODEL = 'vectors for the embedding model are being made: searching by keyword only';
const INCOMPLETE = 'some texts have no vectors yet: what they describe is found by keyword only';

/**
 * An index whose embedder is an API that may fail, or not have answered yet. While it fails, new servers are found by
 * keyword; once it works, what was missed is embedded and the index filled anew, with the old one answering until then. The
 * same when another model answers than the index was made with.
 */
export class RecoveringIndex implements SearchIndex {
  readonly #parts: RecoveringIndexParts;
  #inner: SearchIndex;
  #embedder: RemoteEmbedder;
  /** The epochs of the indexes that this one had before. */
  #epochs = 0;
  #catchingUp: Promise<void> | undefined;
  /** The API has been found working since the index began to catch up. */
  #isDue = false;
  #closed = false;

  private constructor(parts: RecoveringIndexParts, embedder: RemoteEmbedder, inner: SearchIndex) {
    this.#parts = parts;
    this.#embedder = embedder;
    this.#inner = inner;
  }

  /** Does not fail, and waits only seconds, when the API does not answer. */
  static async open(parts: RecoveringIndexParts): Promise<RecoveringIndex> {
    const { api, createIndex } = parts;
    const embedder = await api.connect();
    let isEarly = false;
    api.onWorking = () => void (isEarly = true);
    const index = new RecoveringIndex(parts, embedder, await createIndex(embedder));
    api.onWorking = () => index.#catchUp();
    if (isEarly) index.#catchUp();
    return index;
  }

  get id(): string {
    return this.#inner.id;
  }

  get epoch(): number {
    // A ranking made while the API failed must not be taken for one made before or after.
    return this.#epochs + this.#inner.epoch + this.#parts.api.changes;
  }

  get size(): number {
    return this.#inner.size;
  }

  get embedderId(): string {
    return this.#embedder.id;
  }

  get degraded(): string | undefined {
    const all = [this.#parts.api.degraded, this.indexDegraded].filter(one => one !== undefined);
    return all.length === 0 ? undefined : all.join('; ');
  }

  /** What is wrong with the index itself, whatever the API does. */
  get indexDegraded(): string | undefined {
    const { api } = this.#parts;
    if (this.#inner.degraded !== undefined) return this.#inner.degraded;
    if (!api.gives(this.#embedder)) return OTHER_MODEL;
    return this.#isComplete ? undefined : INCOMPLETE;
  }

  get #isComplete(): boolean {
    return this.#embedder.missing.size === 0;
  }

  prepare(...change: Parameters<SearchIndex['prepare']>): Promise<() => Promise<void>> {
    return this.#inner.prepare(...change);
  }

  find(query: string): Promise<Findings> {
    return this.#inner.find(query);
  }

  compareTools(query: string, server: Described): Promise<readonly ToolEvidence[]> {
    return this.#inner.compareTools(query, server);
  }

  /** Ends what the API is asked, too. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#parts.api.close();
    await this.#catchingUp;
    await this.#inner.close();
  }

  #catchUp(): void {
    this.#isDue = true;
    if (this.#closed || this.#catchingUp) return;
    this.#catchingUp = this.#untilCaughtUp()
      .catch((error: unknown) => {
        if (this.#closed) return;
        this.#parts.log.error({ err: error }, 'the search index could not catch up: it will try again');
        withoutSpan(() => setTimeout(() => this.#catchUp(), RETRY_MS).unref());
      })
      .finally(() => (this.#catchingUp = undefined));
  }

  async #untilCaughtUp(): Promise<void> {
    while (this.#isDue && !this.#closed) {
      this.#isDue = false;
      await this.#catchUpOnce();
    }
  }

  async #catchUpOnce(): Promise<void> {
    const { api, createIndex, reindex, log } = this.#parts;
    const isOther = !api.gives(this.#embedder);
    if (!isOther && this.#isComplete) return;
    const embedder = isOther ? api.embedder() : this.#embedder;
    const texts = isOther ? await this.#allTexts() : [...embedder.missing];
    log.info({ embedder: embedder.id, texts: texts.length }, 'the search index catches up');
    await this.#embedAhead(embedder, texts);
    // The next trial that gets its vector begins anew.
    if (!api.takesTexts) return;
    const inner = isOther ? await createIndex(embedder) : this.#inner;
    await reindex(change => this.#prepareAnew(change, embedder, inner));
    log.info(
      { embedder: embedder.id, servers: this.size, isComplete: this.#isComplete },
      'the search index has caught up',
    );
  }

  async #allTexts(): Promise<string[]> {
    const pause = slices();
    const texts: string[] = [];
    for (const server of this.#parts.active()) {
      for (const { prose } of documentsOf(server).parts) texts.push(prose);
      await pause();
    }
    return texts;
  }

  /** Into the database, from which the index then takes them at once: no other change has to wait for the API. */
  async #embedAhead(embedder: Embedder, texts: readonly string[]): Promise<void> {
    const { db, log } = this.#parts;
    const cache = await VectorCache.open({ embedder, db, log });
    await cache.vectorsOf(texts);
  }

  async #prepareAnew(
    change: CatalogueChange,
    embedder: RemoteEmbedder,
    inner: SearchIndex,
  ): Promise<() => Promise<void>> {
    const missed = [...embedder.missing];
    embedder.missing.clear();
    const takeEffect = await inner.prepare(change).catch((error: unknown) => {
      for (const text of missed) embedder.missing.add(text);
      throw error;
    });
    return async () => {
      await takeEffect();
      if (inner === this.#inner) return;
      const old = this.#inner;
      this.#epochs += old.epoch + 1;
      this.#inner = inner;
      this.#embedder = embedder;
      await old.close();
    };
  }
}
