/** Turns texts into vectors that lie close together when the texts mean the same. */
export interface Embedder {
  /** Names model, weights hash and tokenization version. Vectors of two ids are never mixed. */
  readonly id: string;
  /** Length of every vector. */
  readonly dimensions: number;
  /** Vectors of unit length, one a text, in the order of the texts. */
  embed(texts: readonly string[]): Promise<Float32Array[]>;
  /** Frees what the embedder holds; may be called twice. */
  close(): Promise<void>;
}
