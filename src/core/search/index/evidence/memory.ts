import { Evidence } from './evidence.ts';

const SEGMENTS = 8;
/** Memory of an entry besides its bytes. */
const OVERHEAD_BYTES = 250;

interface Segment {
  readonly buffer: ArrayBuffer;
  entries: Entry[];
  /** Where the next entry starts. */
  end: number;
}

interface Entry {
  readonly hash: string;
  readonly segment: Segment;
  readonly wordsBytes: number;
  readonly vectorsBytes: number;
  /** Its position in the segment. */
  offset: number;
  /** True if a search has asked for it since it was written or kept. */
  isUsed: boolean;
}

/** The bytes of evidence. */
interface Bytes {
  readonly words: Uint8Array<ArrayBuffer>;
  readonly vectors: Uint8Array<ArrayBuffer>;
}

/**
 * The evidence of servers in a fixed amount of memory: a ring of segments, of which the oldest is written over, except for what
 * searches have asked for since (second chance). Nothing is allocated for a search: a hundred buffers for each one made the
 * garbage collector go through the whole heap every thirty searches.
 *
 * `use` and `write` return views of it, which are valid until the next `write`: do not keep them over an await.
 */
export class EvidenceMemory {
  readonly #segmentBytes: number;
  readonly #segments: Segment[] = [];
  readonly #entries = new Map<string, Entry>();
  /** The position of the segment that is being written. */
  #current = -1;

  constructor(maxBytes: number) {
    this.#segmentBytes = Math.floor(maxBytes / SEGMENTS / 4) * 4;
  }

  /** The memory in use; at most `maxBytes`. */
  get bytes(): number {
    return this.#segments.reduce((sum, segment) => sum + bytesOf(segment), 0);
  }

  /** True until the last segment is begun. */
  get hasRoom(): boolean {
    return this.#segments.length < SEGMENTS;
  }

  has(hash: string): boolean {
    return this.#entries.has(hash);
  }

  /** Returns the evidence for a search. */
  use(hash: string): Evidence | undefined {
    const entry = this.#entries.get(hash);
    if (!entry) return undefined;
    entry.isUsed = true;
    return evidenceOf(bytesIn(entry));
  }

  /** Returns the evidence in memory of its own. It does not count as used. */
  copy(hash: string): Evidence | undefined {
    const entry = this.#entries.get(hash);
    if (!entry) return undefined;
    const { words, vectors } = bytesIn(entry);
    return evidenceOf({ words: words.slice(), vectors: vectors.slice() });
  }

  delete(hash: string): void {
    this.#entries.delete(hash);
  }

  /**
   * Makes room for evidence in place of what there is for the hash, and returns what `write` has written there. Evidence that
   * is larger than a segment, an eighth of all, is not kept.
   */
  write(
    hash: string,
    size: { readonly words: number; readonly vectors: number },
    write: (bytes: Bytes) => void,
  ): Evidence {
    this.delete(hash);
    const sizes = { wordsBytes: size.words, vectorsBytes: size.vectors };
    const segment = this.#segmentFor(sizeOf(sizes));
    if (!segment) {
      const own = { words: new Uint8Array(size.words), vectors: new Uint8Array(size.vectors) };
      write(own);
      return evidenceOf(own);
    }
    const entry = { hash, segment, ...sizes, offset: segment.end, isUsed: false };
    const bytes = bytesIn(entry);
    write(bytes);
    segment.entries.push(entry);
    segment.end += sizeOf(entry);
    this.#entries.set(hash, entry);
    return evidenceOf(bytes);
  }

  /** Returns a segment with room for an entry; undefined if it is larger than a segment. */
  #segmentFor(bytes: number): Segment | undefined {
    const size = bytes + OVERHEAD_BYTES;
    const max = this.#segmentBytes;
    if (size > max) return undefined;
    const current = this.#segments[this.#current];
    if (current && bytesOf(current) + size <= max) return current;
    this.#current = (this.#current + 1) % SEGMENTS;
    const oldest = this.#segments[this.#current];
    if (oldest) this.#recycle(oldest, Math.min(max / 2, max - size));
    return (this.#segments[this.#current] ??= { buffer: new ArrayBuffer(max), entries: [], end: 0 });
  }

  /** Keeps the entries of a segment that were used, up to so many bytes, and forgets the others. */
  #recycle(segment: Segment, maxBytes: number): void {
    const { buffer, entries } = segment;
    const bytes = new Uint8Array(buffer);
    segment.entries = [];
    segment.end = 0;
    for (const entry of entries) {
      if (this.#entries.get(entry.hash) !== entry) continue;
      const size = sizeOf(entry);
      if (!entry.isUsed || bytesOf(segment) + size + OVERHEAD_BYTES > maxBytes) {
        this.#entries.delete(entry.hash);
        continue;
      }
      bytes.copyWithin(segment.end, entry.offset, entry.offset + size);
      entry.offset = segment.end;
      entry.isUsed = false;
      segment.entries.push(entry);
      segment.end += size;
    }
  }
}

/** Every entry starts where numbers of 4 bytes may. */
const sizeOf = ({ wordsBytes, vectorsBytes }: Pick<Entry, 'wordsBytes' | 'vectorsBytes'>): number =>
  Math.ceil((wordsBytes + vectorsBytes) / 4) * 4;

const bytesOf = ({ end, entries }: Segment): number => end + entries.length * OVERHEAD_BYTES;

const bytesIn = ({ segment: { buffer }, offset, wordsBytes, vectorsBytes }: Entry): Bytes => ({
  words: new Uint8Array(buffer, offset, wordsBytes),
  vectors: new Uint8Array(buffer, offset + wordsBytes, vectorsBytes),
});

const evidenceOf = ({ words, vectors }: Bytes): Evidence =>
  new Evidence(
    new Int32Array(words.buffer, words.byteOffset, words.byteLength / 4),
    new Int8Array(vectors.buffer, vectors.byteOffset, vectors.byteLength),
  );
