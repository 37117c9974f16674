import type { Described } from '../documents.ts';
import type { CatalogueChange, OnProgress } from '../../catalogue/catalogue.ts';

/** The evidence that one tool fits a query. */
export interface ToolEvidence {
  /** Position in the server's `tools`. */
  readonly index: number;
  /** Cosine, -1 to 1; 0 where no vector is known. */
  readonly semantic: number;
  /** At least 0, in the engine's own unit. */
  readonly keyword: number;
}

/** The evidence that one server fits a query; the ranker compares candidates of one query only. */
export interface Candidate {
  readonly serverId: string;
  /** The best cosine over the server's own text and its tools, 0 where none is above. */
  readonly semantic: number;
  /** At least 0, in the engine's own unit: all the server says together with its best single part. */
  readonly keyword: number;
  readonly tools: readonly ToolEvidence[];
}

/** The evidence that an engine has for one query. */
export interface Findings {
  /** Every server among the best few hundred by meaning or by keyword, in no particular order. */
  readonly candidates: readonly Candidate[];
  /** The query's vectors, one a sentence, of unit length; none where the embedder fails. */
  readonly vectors: readonly Float32Array[];
}

/**
 * PORT: finds candidates by meaning and by keyword. An engine never decides the order: `ranking.ts` does, the same for
 * every engine.
 */
export interface SearchIndex {
  /** Engine and embedder: rankings of two ids must never be mixed. */
  readonly id: string;
  /** Names the model that its vectors are made with. */
  readonly embedderId: string;
  /** Grows with every change that a query could see. */
  readonly epoch: number;
  /** Active servers in the index. */
  readonly size: number;
  /** Names what does not work at present, in a few words; undefined when everything does. */
  readonly degraded: string | undefined;
  /**
   * Makes a change ready, vectors and all; after a rejection the index is as it was. The step it resolves with puts the change
   * into effect: at once where the change is one of the whole or touches every server, else server by server.
   * @param signal ends the preparation, with its reason; when it aborts after that, the change will not take effect
   */
  prepare(
    change: CatalogueChange,
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<() => Promise<void>>;
  find(query: string): Promise<Findings>;
  /** The evidence that each tool of a server fits a query, in their order; neither has to be in the index. */
  compareTools(query: string, server: Described): Promise<readonly ToolEvidence[]>;
  close(): Promise<void>;
}
