import { type QuantizedVector, quantize } from './vector-format.ts';
import {
  Bump,
  instantiateKernel,
  type Kernel,
  kernelMemory,
  kernelModule,
  PAGE_BYTES,
} from '../embed/minilm/kernel.ts';

/** Rows in a block. Memory grows by whole blocks, so a row never moves; a block of 384 dimensions is 0.4 MB. */
const BLOCK_ROWS = 1024;
const FLOAT_BYTES = 4;

/** 2.7 million rows of 384 dimensions. Address space is reserved for it, memory is not. */
const MAX_MEMORY_BYTES = 1024 * 1024 * 1024;

/**
 * Vectors of 8 bits a component, scanned by brute force on the calling thread: 100,000 rows of 384 dimensions are
 * 39 MB and take a few milliseconds. Rows are numbers the caller gives out; a row never set has cosine 0.
 */
export class VectorStore {
  readonly dimensions: number;
  readonly #memory: WebAssembly.Memory;
  readonly #kernel: Kernel;
  /** Byte offsets: the query and one block's results come first, then the blocks. */
  readonly #query: number;
  readonly #results: number;
  readonly #firstBlock: number;
  /** Bytes of a block: BLOCK_ROWS rows of int8, then their scales. */
  readonly #blockBytes: number;
  #blocks = 0;
  #size = 0;

  /** @throws RangeError when `dimensions` is not a positive multiple of 16, the width of a SIMD register */
  constructor(dimensions: number) {
    if (!Number.isInteger(dimensions) || dimensions <= 0 || dimensions % 16 !== 0) {
      throw new RangeError(`dimensions must be a positive multiple of 16, not ${dimensions}`);
    }
    this.dimensions = dimensions;
    const bump = new Bump();
    this.#query = bump.take(dimensions);
    this.#results = bump.take(BLOCK_ROWS * FLOAT_BYTES);
    this.#firstBlock = bump.size;
    this.#blockBytes = BLOCK_ROWS * (dimensions + FLOAT_BYTES);
    this.#memory = kernelMemory(this.#firstBlock, MAX_MEMORY_BYTES);
    this.#kernel = instantiateKernel(kernelModule(), this.#memory);
  }

  /** The highest row set, plus one: the length of what `scan` returns. */
  get size(): number {
    return this.#size;
  }

  /**
   * Sets a row, replacing what it held. The zero vector empties it.
   * @param vector of unit length, else `scan` gives dot products, not cosines
   * @throws RangeError when the row is not a whole number >= 0 that fits in 1 GiB, or the vector is of other dimensions
   */
  set(row: number, vector: Float32Array | QuantizedVector): void {
    if (!Number.isInteger(row) || row < 0) throw new RangeError(`${row} is not a row number`);
    const { values, scale } = this.#quantized(vector);
    this.#reach(Math.floor(row / BLOCK_ROWS) + 1);
    const block = this.#block(Math.floor(row / BLOCK_ROWS));
    const within = row % BLOCK_ROWS;
    new Int8Array(this.#memory.buffer, block + within * this.dimensions, this.dimensions).set(values);
    new Float32Array(this.#memory.buffer, this.#scales(block), BLOCK_ROWS)[within] = scale;
    this.#size = Math.max(this.#size, row + 1);
  }

  /**
   * Cosine of the query with every row, within about .01 of the exact one.
   * @param query of unit length
   * @returns a copy, [size], indexed by row
   * @throws RangeError when the query is of other dimensions
   */
  scan(query: Float32Array | QuantizedVector): Float32Array<ArrayBuffer> {
    const { values, scale } = this.#quantized(query);
    new Int8Array(this.#memory.buffer, this.#query, this.dimensions).set(values);
    const cosines = new Float32Array(this.#size);
    for (let first = 0; first < this.#size; first += BLOCK_ROWS) {
      const block = this.#block(first / BLOCK_ROWS);
      const count = Math.min(BLOCK_ROWS, this.#size - first);
      this.#kernel.scan8(
        this.#query,
        block,
        this.#scales(block),
        count,
        this.dimensions,
        scale,
        this.#results,
      );
      cosines.set(new Float32Array(this.#memory.buffer, this.#results, count), first);
    }
    return cosines;
  }

  #quantized(vector: Float32Array | QuantizedVector): QuantizedVector {
    const quantized = vector instanceof Float32Array ? quantize(vector) : vector;
    if (quantized.values.length === this.dimensions) return quantized;
    throw new RangeError(`The vector has ${quantized.values.length} dimensions, not ${this.dimensions}`);
  }

  #block(index: number): number {
    return this.#firstBlock + index * this.#blockBytes;
  }

  #scales(block: number): number {
    return block + BLOCK_ROWS * this.dimensions;
  }

  /** Grows the memory until it has `blocks` blocks; fresh memory is zero, which is a row never set. */
  #reach(blocks: number): void {
    if (blocks <= this.#blocks) return;
    const missing = this.#block(blocks) - this.#memory.buffer.byteLength;
    if (this.#block(blocks) > MAX_MEMORY_BYTES) throw new RangeError('The vector store is full (1 GiB)');
    if (missing > 0) this.#memory.grow(Math.ceil(missing / PAGE_BYTES));
    this.#blocks = blocks;
  }
}
