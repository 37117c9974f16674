/**
 * The purpose of vectors. A search waits for those of its `query`, and not for long; those to be kept (`index`) may take minutes.
 * A model may map the two differently; they are compared with each other.
 */
export type EmbeddingPurpose = 'query' | 'index';

/** Turns texts into vectors that lie close together when the texts mean the same. */
export interface Embedder {
  /** Names the model, its weights or address, and the tokenization. Vectors of two ids are never mixed. */
  readonly id: string;
  /** Length of every vector. */
  readonly dimensions: number;
  /** Names what fails at present, for an embedder that watches itself; an index then says nothing of its failures. */
  readonly degraded?: string | undefined;
  /** Number of calls of `embed` for the index that are worth making at a time; 2 where absent. */
  readonly indexCalls?: number;
  /**
   * Returns vectors of unit length, one a text, in the order of the texts. For the `index`, a text that cannot be embedded at
   * present may have a vector of zeros, which is not to be kept: its cosine with everything is 0.
   */
  embed(texts: readonly string[], purpose: EmbeddingPurpose): Promise<Float32Array[]>;
  /** Frees what the embedder holds; may be called twice. */
  close(): Promise<void>;
}
