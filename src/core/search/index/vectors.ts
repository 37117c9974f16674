import { createHash } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import {
  Bump,
  instantiateKernel,
  kernelMemory,
  kernelModule,
  PAGE_BYTES,
  type Kernel,
} from '../embed/minilm/kernel.ts';

/** A vector with 8 bits per component: component i is `values[i] * scale`. */
export interface QuantizedVector {
  /** -127 … 127. */
  readonly values: Int8Array;
  /** Largest magnitude / 127; 0 for the zero vector. */
  readonly scale: number;
}

const LARGEST = 127;
const SCALE_BYTES = 4;

/**
 * Quantizes with the vector's own scale: every component is off by at most scale / 2. The scale is rounded to f32, so that it
 * survives `encodeVector`.
 * @throws RangeError if a component is not finite
 */
export function quantize(vector: Float32Array): QuantizedVector {
  let magnitude = 0;
  for (const component of vector) {
    if (!Number.isFinite(component)) throw new RangeError('A vector component is not finite');
    magnitude = Math.max(magnitude, Math.abs(component));
  }
  const values = new Int8Array(vector.length);
  const scale = Math.fround(magnitude / LARGEST);
  // Very small vectors, whose scale underflows, count as zero.
  if (scale === 0) return { values, scale };
  for (const [i, component] of vector.entries()) {
    values[i] = Math.max(-LARGEST, Math.min(LARGEST, Math.round(component / scale)));
  }
  return { values, scale };
}

/** Returns the bytes of an encoded vector. */
export const encodedLength = (dimensions: number): number => dimensions + SCALE_BYTES;

/** Encodes a vector for storage in `encodedLength` bytes: the values, then the scale as little-endian f32. */
export function encodeVector({ values, scale }: QuantizedVector): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(encodedLength(values.length));
  bytes.set(new Uint8Array(values.buffer, values.byteOffset, values.length));
  new DataView(bytes.buffer).setFloat32(values.length, scale, true);
  return bytes;
}

/**
 * Decodes the bytes from `encodeVector` into new memory.
 * @throws RangeError if the bytes cannot be an encoded vector
 */
export function decodeVector(bytes: Uint8Array): QuantizedVector {
  const { values, scale } = viewVector(bytes);
  return { values: values.slice(), scale };
}

/** Returns the vector of `encodeVector`'s bytes as a view, without a copy. */
export function viewVector(bytes: Uint8Array): QuantizedVector {
  const dimensions = bytes.length - SCALE_BYTES;
  if (dimensions < 1) throw new RangeError(`${bytes.length} bytes are too few for a vector`);
  const scale = new DataView(bytes.buffer, bytes.byteOffset).getFloat32(dimensions, true);
  if (!Number.isFinite(scale) || scale < 0) throw new RangeError(`${scale} is not a valid vector scale`);
  return { values: new Int8Array(bytes.buffer, bytes.byteOffset, dimensions), scale };
}

/**
 * The file of shipped vectors, all numbers little-endian: magic (8 bytes) · version u32 · dimensions u32 · count u32 · length
 * of the embedder id u32 · embedder id (UTF-8) · count entries of text hash (32 bytes) and vector (`encodeVector`), sorted by
 * hash · SHA-256 of everything before it.
 */
const MAGIC = Buffer.from('SBVECTOR', 'latin1');
const VERSION = 1;
const FIXED_HEADER_BYTES = MAGIC.length + 4 * 4;
const HASH_BYTES = 32;

interface VectorFileContent {
  readonly embedderId: string;
  readonly dimensions: number;
  /** SHA-256 of a text and its vector. */
  readonly entries: readonly (readonly [Buffer, QuantizedVector])[];
}

/** Returns the bytes of the file. Equal content gives equal bytes, whatever the order of its entries. */
export function writeVectorFile({ embedderId, dimensions, entries }: VectorFileContent): Buffer {
  const id = Buffer.from(embedderId);
  const header = Buffer.alloc(FIXED_HEADER_BYTES);
  MAGIC.copy(header);
  const numbers = [VERSION, dimensions, entries.length, id.length];
  for (const [at, value] of numbers.entries()) header.writeUInt32LE(value, MAGIC.length + at * 4);
  const sorted = entries.toSorted(([a], [b]) => Buffer.compare(a, b));
  const body = Buffer.concat([
    header,
    id,
    ...sorted.flatMap(([hash, vector]) => [hash, encodeVector(vector)]),
  ]);
  return Buffer.concat([body, sha256(body)]);
}

/**
 * A file of vectors. Only the hashes of its texts stay in memory, a twelfth of the file: a vector is needed when its text is
 * indexed, and seldom afterwards.
 */
export class VectorFile {
  readonly #path: string;
  readonly #header: Header;
  /** The hashes of all texts, one after another. */
  readonly #hashes: Buffer;
  /** SHA-256 of the file, which is also its end. */
  readonly #digest: Buffer;

  private constructor(path: string, header: Header, contents: { hashes: Buffer; digest: Buffer }) {
    this.#path = path;
    this.#header = header;
    this.#hashes = contents.hashes;
    this.#digest = contents.digest;
  }

  /** @throws Error if the file cannot be read, or is not a complete, undamaged one of this version */
  static async read(path: string): Promise<VectorFile> {
    await using file = await open(path);
    const header = await readHeader(file);
    const { start, end, count, entryBytes } = header;
    const hash = createHash('sha256').update(await readAt(file, 0, start));
    const hashes = Buffer.alloc(count * HASH_BYTES);
    for (let at = 0; at < count; at += ENTRIES_OF_A_READ) {
      const entries = Math.min(ENTRIES_OF_A_READ, count - at);
      const bytes = await readAt(file, start + at * entryBytes, entries * entryBytes);
      hash.update(bytes);
      for (let entry = 0; entry < entries; entry++)
        bytes.copy(hashes, (at + entry) * HASH_BYTES, entry * entryBytes, entry * entryBytes + HASH_BYTES);
    }
    const digest = hash.digest();
    if (!digest.equals(await readAt(file, end, HASH_BYTES))) throw new Error('the vector file is damaged');
    return new VectorFile(path, header, { hashes, digest });
  }

  get embedderId(): string {
    return this.#header.embedderId;
  }

  get dimensions(): number {
    return this.#header.dimensions;
  }

  /** Returns the sorted SHA-256 of each text with a vector. */
  hashes(): Buffer[] {
    return Array.from({ length: this.#header.count }, (_, at) => this.#hashAt(at));
  }

  /**
   * Opens the file to look vectors up, until it is disposed of. In one that is gone or is another by now, nothing is found.
   * Reading blocks for some microseconds, because the system has the file in memory since it was checked.
   */
  open(): VectorReader {
    const { start, entryBytes } = this.#header;
    let file: number | undefined;
    let isSameFile = false;
    try {
      file = openSync(this.#path, 'r');
      isSameFile = this.#endsAsBefore(file);
    } catch {
      // The texts are embedded instead.
    }
    const entry = Buffer.alloc(entryBytes);
    return {
      find: hash => {
        const at = this.#positionOf(hash);
        if (at === undefined || file === undefined || !isSameFile) return undefined;
        const length = readSync(file, entry, 0, entryBytes, start + at * entryBytes);
        const isSame = length === entryBytes && entry.compare(hash, 0, HASH_BYTES, 0, HASH_BYTES) === 0;
        return isSame ? decodeVector(entry.subarray(HASH_BYTES)) : undefined;
      },
      [Symbol.dispose]: () => {
        if (file !== undefined) closeSync(file);
      },
    };
  }

  #endsAsBefore(file: number): boolean {
    const end = Buffer.alloc(HASH_BYTES);
    return readSync(file, end, 0, HASH_BYTES, this.#header.end) === HASH_BYTES && end.equals(this.#digest);
  }

  /** Their first 32 bits usually tell hashes apart. */
  #positionOf(hash: Buffer): number | undefined {
    const { count } = this.#header;
    const start = hash.readUInt32BE(0);
    let low = 0;
    let high = count;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#startAt(middle) < start) low = middle + 1;
      else high = middle;
    }
    for (let at = low; at < count && this.#startAt(at) === start; at++)
      if (this.#hashAt(at).equals(hash)) return at;
    return undefined;
  }

  #startAt(position: number): number {
    return this.#hashes.readUInt32BE(position * HASH_BYTES);
  }

  #hashAt(position: number): Buffer {
    return this.#hashes.subarray(position * HASH_BYTES, (position + 1) * HASH_BYTES);
  }
}

export interface VectorReader extends Disposable {
  /** Returns the vector of the text with that SHA-256. */
  find(hash: Buffer): QuantizedVector | undefined;
}

interface Header {
  readonly embedderId: string;
  readonly dimensions: number;
  readonly count: number;
  readonly entryBytes: number;
  /** Where the entries begin and end. */
  readonly start: number;
  readonly end: number;
}

/** About a megabyte with the local model. */
const ENTRIES_OF_A_READ = 2_500;

async function readHeader(file: FileHandle): Promise<Header> {
  const { size } = await file.stat();
  const fixed = await readAt(file, 0, Math.min(size, FIXED_HEADER_BYTES));
  if (size < FIXED_HEADER_BYTES + HASH_BYTES || !fixed.subarray(0, MAGIC.length).equals(MAGIC))
    throw new Error('not a vector file');
  const number = (at: number) => fixed.readUInt32LE(MAGIC.length + at * 4);
  const [version, dimensions, count, idBytes] = [number(0), number(1), number(2), number(3)];
  if (version !== VERSION) throw new Error(`unknown version ${version} of the vector file`);
  const start = FIXED_HEADER_BYTES + idBytes;
  const entryBytes = HASH_BYTES + encodedLength(dimensions);
  const end = start + count * entryBytes;
  if (size !== end + HASH_BYTES) throw new Error('the vector file is truncated');
  const embedderId = (await readAt(file, FIXED_HEADER_BYTES, idBytes)).toString('utf8');
  return { embedderId, dimensions, count, entryBytes, start, end };
}

/** @throws Error if the file ends before that */
async function readAt(file: FileHandle, position: number, length: number): Promise<Buffer> {
  const { bytesRead, buffer } = await file.read(Buffer.alloc(length), 0, length, position);
  if (bytesRead < length) throw new Error('the vector file is truncated');
  return buffer;
}

const sha256 = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();

/** Rows per block. Memory grows by whole blocks, so a row never moves; a block of 384 dimensions is 0.4 MB. */
const BLOCK_ROWS = 1024;
const FLOAT_BYTES = 4;

/** @throws RangeError if `dimensions` is not a positive multiple of 16, the width of a SIMD register */
function requireScannable(dimensions: number): void {
  if (!Number.isInteger(dimensions) || dimensions <= 0 || dimensions % 16 !== 0) {
    throw new RangeError(`dimensions must be a positive multiple of 16, not ${dimensions}`);
  }
}

/** 2.7 million rows of 384 dimensions. Only address space is reserved for it. */
const MAX_MEMORY_BYTES = 1024 * 1024 * 1024;

/**
 * Vectors with 8 bits per component, scanned by brute force on the calling thread: 100,000 rows of 384 dimensions are 39 MB
 * and take a few milliseconds. The caller assigns row numbers; an unset row has cosine 0.
 */
export class VectorStore {
  readonly dimensions: number;
  readonly #memory: WebAssembly.Memory;
  readonly #kernel: Kernel;
  /** Byte offsets: the query and one block's results come first, then the blocks. */
  readonly #query: number;
  readonly #results: number;
  readonly #firstBlock: number;
  /** Bytes per block: BLOCK_ROWS rows of int8, then their scales. */
  readonly #blockBytes: number;
  #blocks = 0;
  #size = 0;

  /** @throws RangeError if the kernel cannot scan that many dimensions */
  constructor(dimensions: number) {
    requireScannable(dimensions);
    this.dimensions = dimensions;
    const bump = new Bump();
    this.#query = bump.take(dimensions);
    this.#results = bump.take(BLOCK_ROWS * FLOAT_BYTES);
    this.#firstBlock = bump.size;
    this.#blockBytes = BLOCK_ROWS * (dimensions + FLOAT_BYTES);
    this.#memory = kernelMemory(this.#firstBlock, MAX_MEMORY_BYTES);
    this.#kernel = instantiateKernel(kernelModule(), this.#memory);
  }

  /** The highest set row plus one: the length of the result of `scan`. */
  get size(): number {
    return this.#size;
  }

  /**
   * Sets a row, replacing its content. The zero vector empties it.
   * @param vector of unit length; otherwise `scan` returns dot products, not cosines
   * @throws RangeError if the row is not a whole number >= 0 that fits in 1 GiB, or the vector has other dimensions
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
   * Returns the cosine of the query with every row, accurate to about .01.
   * @param query of unit length
   * @returns a copy, [size], indexed by row
   * @throws RangeError if the query has other dimensions
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

  /** Grows the memory to `blocks` blocks; fresh memory is zero, which means unset. */
  #reach(blocks: number): void {
    if (blocks <= this.#blocks) return;
    const missing = this.#block(blocks) - this.#memory.buffer.byteLength;
    if (this.#block(blocks) > MAX_MEMORY_BYTES) throw new RangeError('The vector store is full (1 GiB)');
    if (missing > 0) this.#memory.grow(Math.ceil(missing / PAGE_BYTES));
    this.#blocks = blocks;
  }
}

/**
 * Returns the cosine of a query with each of the encoded vectors that follow one another, bit for bit equal to `VectorStore.scan`.
 * @throws RangeError if the kernel cannot scan that many dimensions
 */
export function cosinesOf({ values, scale }: QuantizedVector, encoded: Int8Array): Float32Array<ArrayBuffer> {
  const dimensions = values.length;
  requireScannable(dimensions);
  const row = encodedLength(dimensions);
  const count = encoded.length / row;
  const bump = new Bump();
  const [query, rows, results] = [
    bump.take(dimensions),
    bump.take(encoded.length),
    bump.take(count * FLOAT_BYTES),
  ];
  const { memory, kernel } = scratch();
  const missing = bump.size - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE_BYTES));
  new Int8Array(memory.buffer, query).set(values);
  new Int8Array(memory.buffer, rows).set(encoded);
  for (let at = 0; at < count; at++) {
    const start = rows + at * row;
    kernel.scan8(query, start, start + dimensions, 1, dimensions, scale, results + at * FLOAT_BYTES);
  }
  return new Float32Array(memory.buffer, results, count).slice();
}

let shared: { readonly memory: WebAssembly.Memory; readonly kernel: Kernel } | undefined;

function scratch(): NonNullable<typeof shared> {
  if (!shared) {
    const memory = kernelMemory(PAGE_BYTES, MAX_MEMORY_BYTES);
    shared = { memory, kernel: instantiateKernel(kernelModule(), memory) };
  }
  return shared;
}

/** Returns the largest value, but no less than `least`. */
export function largest(values: ArrayLike<number>, least = 0): number {
  let best = least;
  for (let at = 0; at < values.length; at++) {
    const value = values[at] ?? 0;
    if (value > best) best = value;
  }
  return best;
}

/** The number of examples that support the best cosine of a server. */
const SUPPORTING = 5;

/**
 * Returns by how much a server's best cosine exceeds the mean of its five best: of its examples, or of its best other text and four
 * of them. A single example may be close to a query by chance.
 * @param examples the cosines of its examples
 */
export function excessOf(best: number, examples: Float32Array): number {
  if (examples.length === 0) return 0;
  const ascending = examples.toSorted();
  const isExample = best <= (ascending.at(-1) ?? 0);
  const supporting = ascending.subarray(isExample ? -SUPPORTING : 1 - SUPPORTING);
  const sum = supporting.reduce((total, cosine) => total + cosine, isExample ? 0 : best);
  return best - sum / (supporting.length + (isExample ? 0 : 1));
}
