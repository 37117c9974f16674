import { createHash } from 'node:crypto';
import { decodeVector, encodedLength, encodeVector, type QuantizedVector } from './quantize.ts';

/**
 * The file of shipped vectors, all numbers little-endian:
 * magic (8 bytes) · version u32 · dimensions u32 · count u32 · length of the embedder id u32 · embedder id (UTF-8) ·
 * count entries of text hash (32 bytes) and vector (`encodeVector`), sorted by hash · SHA-256 of all before it.
 */
const MAGIC = Buffer.from('SBVECTOR', 'latin1');
const VERSION = 1;
const FIXED_HEADER_BYTES = MAGIC.length + 4 * 4;
const HASH_BYTES = 32;

export interface VectorFile {
  readonly embedderId: string;
  readonly dimensions: number;
  /** SHA-256 of each text that has a vector, sorted. */
  readonly hashes: readonly Buffer[];
  /** The vector of the text with that SHA-256. */
  find(hash: Buffer): QuantizedVector | undefined;
}

interface VectorFileContent {
  readonly embedderId: string;
  readonly dimensions: number;
  /** SHA-256 of a text and its vector. */
  readonly entries: readonly (readonly [Buffer, QuantizedVector])[];
}

/** The same content gives the same bytes, in whatever order its entries come. */
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

/** @throws Error when the bytes are not a whole, undamaged file of this version. */
export function readVectorFile(file: Buffer): VectorFile {
  if (file.length < FIXED_HEADER_BYTES + HASH_BYTES || !file.subarray(0, MAGIC.length).equals(MAGIC)) {
    throw new Error('not a file of vectors');
  }
  const number = (at: number) => file.readUInt32LE(MAGIC.length + at * 4);
  const [version, dimensions, count, idBytes] = [number(0), number(1), number(2), number(3)];
  if (version !== VERSION) throw new Error(`version ${version} of the file of vectors is not known`);
  const start = FIXED_HEADER_BYTES + idBytes;
  const entryBytes = HASH_BYTES + encodedLength(dimensions);
  const end = start + count * entryBytes;
  if (file.length !== end + HASH_BYTES) throw new Error('the file of vectors is truncated');
  if (!sha256(file.subarray(0, end)).equals(file.subarray(end)))
    throw new Error('the file of vectors is damaged');
  const hashAt = (position: number) => file.subarray(start + position * entryBytes).subarray(0, HASH_BYTES);
  return {
    embedderId: file.toString('utf8', FIXED_HEADER_BYTES, start),
    dimensions,
    hashes: Array.from({ length: count }, (_, position) => hashAt(position)),
    find(hash) {
      let low = 0;
      let high = count;
      while (low < high) {
        const middle = (low + high) >>> 1;
        if (Buffer.compare(hashAt(middle), hash) < 0) low = middle + 1;
        else high = middle;
      }
      if (low === count || !hashAt(low).equals(hash)) return undefined;
      const entry = file.subarray(start + low * entryBytes, start + (low + 1) * entryBytes);
      return decodeVector(entry.subarray(HASH_BYTES));
    },
  };
}

const sha256 = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();
