import { decodeVector, encodedLength, encodeVector, quantize } from '../../index/vectors.ts';

/**
 * A linear map of query vectors, learned from requests and the servers that serve them (`bench/tune.ts`): it moves what
 * people ask for closer to what servers say of themselves. Document vectors stay as they are.
 */
export class QueryAdapter {
  readonly dimensions: number;
  readonly #delta: Float32Array;

  /** @param delta the map less the identity, [dimensions, dimensions] row-major */
  constructor(delta: Float32Array, dimensions: number) {
    if (delta.length !== dimensions * dimensions)
      throw new RangeError(`${delta.length} numbers are not a matrix of ${dimensions} by ${dimensions}`);
    this.dimensions = dimensions;
    this.#delta = delta;
  }

  /**
   * The inverse of `encode`.
   * @throws RangeError when the bytes are not such a matrix
   */
  static decode(bytes: Uint8Array, dimensions: number): QueryAdapter {
    const rowBytes = encodedLength(dimensions);
    if (bytes.length !== rowBytes * dimensions)
      throw new RangeError(`${bytes.length} bytes are not an adapter of ${dimensions} dimensions`);
    const delta = new Float32Array(dimensions * dimensions);
    for (let row = 0; row < dimensions; row++) {
      const { values, scale } = decodeVector(bytes.subarray(row * rowBytes, (row + 1) * rowBytes));
      for (const [column, value] of values.entries()) delta[row * dimensions + column] = value * scale;
    }
    return new QueryAdapter(delta, dimensions);
  }

  /** 8 bits a number and a scale a row. */
  encode(): Uint8Array {
    const rows = Array.from({ length: this.dimensions }, (_, row) =>
      encodeVector(quantize(this.#delta.slice(row * this.dimensions, (row + 1) * this.dimensions))),
    );
    return Buffer.concat(rows);
  }

  /** The mapped vector, of unit length. */
  apply(vector: Float32Array): Float32Array {
    const mapped = this.#map(vector);
    const length = lengthOf(mapped);
    return length === 0 ? mapped : mapped.map(value => value / length);
  }

  /** The length of the mapped vector before it is made a unit vector. */
  lengthOf(vector: Float32Array): number {
    return lengthOf(this.#map(vector));
  }

  #map(vector: Float32Array): Float32Array {
    const { dimensions } = this;
    const mapped = Float32Array.from(vector);
    for (let row = 0; row < dimensions; row++) {
      let sum = 0;
      for (let column = 0; column < dimensions; column++) {
        sum += (this.#delta[row * dimensions + column] ?? 0) * (vector[column] ?? 0);
      }
      mapped[row] = (mapped[row] ?? 0) + sum;
    }
    return mapped;
  }
}

const lengthOf = (vector: Float32Array): number =>
  Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
