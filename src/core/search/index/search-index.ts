import type { Described } from '../documents.ts';
import type { QueryLanguage } from '../glossary.ts';
import type { CatalogueChange, OnProgress } from '../../catalogue/catalogue.ts';

/** The evidence that the tools of a server match a query, by their position in its `tools`. */
export interface ToolEvidence {
  /** Cosines, -1 to 1; 0 where no vector is known. */
  readonly semantic: ArrayLike<number>;
  /** At least 0, in the engine's own unit. */
  readonly keyword: ArrayLike<number>;
}

/** The evidence that one server matches a query; comparable only within one query. */
export interface Candidate {
  readonly serverId: string;
  /** The number of its texts: its own, and one for each tool and example. */
  readonly texts: number;
  /** The best cosine over its texts, 0 if none is positive. */
  readonly semantic: number;
  /** The best cosine over its own text and its tools, without its examples; 0 if none is positive. */
  readonly direct: number;
  /** By how much `semantic` exceeds what other examples support, see `excessOf`; 0 without examples. */
  readonly excess: number;
  /** At least 0, in the engine's own unit: the whole server's text together with its best single part. */
  readonly keyword: number;
  readonly tools: ToolEvidence;
}

/** A query, or a clause of one, that is being embedded. */
export interface Asked {
  readonly text: string;
  /** Different terms. */
  readonly terms: readonly string[];
  /** Unit vectors, one per sentence; none if the embedder fails. Never rejects. */
  readonly vectors: Promise<readonly Float32Array[]>;
  /** The clauses of a query that asks for two or three things, to be found one by one; a clause has none. */
  readonly clauses: readonly Asked[];
  /** Undefined for English. */
  readonly language: QueryLanguage | undefined;
}

/** The evidence that an engine has for one query. */
export interface Findings {
  /** Every server among the best by meaning or by keyword, in no particular order. */
  readonly candidates: readonly Candidate[];
  readonly vectors: readonly Float32Array[];
}

/**
 * PORT: finds candidates by meaning and by keyword. The engine does not decide the order: `ranking.ts` does, equally for
 * every engine.
 */
export interface SearchIndex {
  /** Engine and embedder: rankings with different ids must never be mixed. */
  readonly id: string;
  /** Identifies the model of its vectors. */
  readonly embedderId: string;
  /** Incremented by every change of its servers that a query could see. */
  readonly epoch: number;
  /** Incremented whenever queries lose or regain their vectors. */
  readonly vectorChanges: number;
  /** The number of active servers in the index. */
  readonly size: number;
  /** The current problem, in a few words; undefined if there is none. */
  readonly degraded: string | undefined;
  /**
   * Prepares a change, including its vectors; after a rejection the index is unchanged. The resulting step applies the
   * change: atomically if it concerns the whole catalogue or affects every server, otherwise server by server.
   * @param signal aborts the preparation, with its reason; after that, the step must not be called
   */
  prepare(
    change: CatalogueChange,
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<() => Promise<void>>;
  /** Begins to embed a query. */
  ask(query: string): Asked;
  /** @param count the number of candidates by meaning, and by keyword; default: enough for a ranking */
  find(asked: Asked, count?: number): Promise<Findings>;
  /** Returns the evidence that each tool of a server matches a query, in their order; the server need not be in the index. */
  compareTools(query: string, server: Described): Promise<ToolEvidence>;
  /**
   * Returns the hashes of the rows of `search_documents` that the servers of the index need. Absent if it needs none of that
   * table; undefined if that is not known yet.
   */
  neededDocuments?(): ReadonlySet<string> | undefined;
  close(): Promise<void>;
}
