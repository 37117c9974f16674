import { encodedLength, encodeVector, quantize, VectorStore, viewVector } from './index/vectors.ts';

/** So many of the nearest count: one may be near by chance. */
const NEAREST = 5;

/** How near a request is to known ones, as cosines. */
export interface Nearness {
  /** To questions that a general search of the web answers best. */
  readonly question: number;
  /** To requests that something else serves, or nothing. */
  readonly other: number;
}

/** Requests of which is known what serves them, as vectors: what is near to them probably needs the same. */
export class KnownRequests {
  readonly #store: VectorStore;
  readonly #questions: number;

  /**
   * @param bytes from `encode`
   * @param questions the number of the first ones, which are questions
   * @throws RangeError if the bytes are not whole vectors
   */
  constructor(bytes: Uint8Array, { dimensions, questions }: { dimensions: number; questions: number }) {
    const length = encodedLength(dimensions);
    if (bytes.length % length !== 0)
      throw new RangeError(`${bytes.length} bytes are not vectors of ${dimensions} dimensions`);
    this.#store = new VectorStore(dimensions);
    this.#questions = questions;
    for (let row = 0; row * length < bytes.length; row++)
      this.#store.set(row, viewVector(bytes.subarray(row * length, (row + 1) * length)));
  }

  /** @param requests unit vectors, questions first */
  static encode(requests: readonly Float32Array[]): Uint8Array {
    return Buffer.concat(requests.map(vector => encodeVector(quantize(vector))));
  }

  /** @param request a vector of any length */
  nearness(request: Float32Array): Nearness {
    const cosines = this.#store.scan(unit(request));
    return {
      question: nearest(cosines.subarray(0, this.#questions)),
      other: nearest(cosines.subarray(this.#questions)),
    };
  }
}

/** Returns the mean of the largest values; 0 without any. */
export function nearest(cosines: Float32Array): number {
  // Ascending. Sorting all of them would take longer than the scan.
  const largest = cosines.slice(0, NEAREST).sort();
  for (const cosine of cosines.subarray(NEAREST)) {
    if (cosine <= (largest[0] ?? 0)) continue;
    largest[0] = cosine;
    largest.sort();
  }
  return largest.reduce((sum, cosine) => sum + cosine, 0) / Math.max(1, largest.length);
}

function unit(vector: Float32Array): Float32Array {
  const length = Math.hypot(...vector);
  return length === 0 ? vector : vector.map(value => value / length);
}
