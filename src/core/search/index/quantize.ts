/** A vector in 8 bits a component: component i is `values[i] * scale`. */
export interface QuantizedVector {
  /** -127 … 127. */
  readonly values: Int8Array;
  /** Largest magnitude / 127; 0 for the zero vector. */
  readonly scale: number;
}

const LARGEST = 127;
const SCALE_BYTES = 4;

/**
 * Quantizes with the vector's own scale: every component is off by at most scale / 2. The scale is rounded to f32, so
 * that it survives `encodeVector`.
 * @throws RangeError when a component is not finite
 */
export function quantize(vector: Float32Array): QuantizedVector {
  let largest = 0;
  for (const component of vector) {
    if (!Number.isFinite(component)) throw new RangeError('A vector component is not finite');
    largest = Math.max(largest, Math.abs(component));
  }
  const values = new Int8Array(vector.length);
  const scale = Math.fround(largest / LARGEST);
  // Vanishingly small vectors, whose scale underflows, count as zero.
  if (scale === 0) return { values, scale };
  for (const [i, component] of vector.entries()) {
    values[i] = Math.max(-LARGEST, Math.min(LARGEST, Math.round(component / scale)));
  }
  return { values, scale };
}

/** The dot product of a query and a vector of the same length, to the last bit that of `VectorStore.scan`. */
export function dot(a: QuantizedVector, b: QuantizedVector): number {
  let sum = 0;
  for (let i = 0; i < a.values.length; i++) sum += (a.values[i] ?? 0) * (b.values[i] ?? 0);
  return Math.fround(Math.fround(Math.fround(sum) * a.scale) * b.scale);
}

/** Bytes of an encoded vector. */
export const encodedLength = (dimensions: number): number => dimensions + SCALE_BYTES;

/** Byte form for storage, `encodedLength` bytes: the values, then the scale as little-endian f32. */
export function encodeVector({ values, scale }: QuantizedVector): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(encodedLength(values.length));
  bytes.set(new Uint8Array(values.buffer, values.byteOffset, values.length));
  new DataView(bytes.buffer).setFloat32(values.length, scale, true);
  return bytes;
}

/**
 * The vector of `encodeVector`'s bytes, in memory of its own.
 * @throws RangeError when the bytes cannot be an encoded vector
 */
export function decodeVector(bytes: Uint8Array): QuantizedVector {
  const { values, scale } = viewVector(bytes);
  return { values: values.slice(), scale };
}

/** The same over the bytes themselves. */
export function viewVector(bytes: Uint8Array): QuantizedVector {
  const dimensions = bytes.length - SCALE_BYTES;
  if (dimensions < 1) throw new RangeError(`${bytes.length} bytes are too few for a vector`);
  const scale = new DataView(bytes.buffer, bytes.byteOffset).getFloat32(dimensions, true);
  if (!Number.isFinite(scale) || scale < 0) throw new RangeError(`${scale} is not the scale of a vector`);
  return { values: new Int8Array(bytes.buffer, bytes.byteOffset, dimensions), scale };
}
