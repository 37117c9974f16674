import { sanitise } from '../../../../platform/sanitize.ts';
import { EmbeddingFailure } from './failure.ts';

const FLOAT_BYTES = 4;
/** Far above any model's; it bounds what a wrong answer can make us hold. */
const MAX_DIMENSIONS = 16_384;

export interface EmbeddingAnswer {
  /** Of unit length, in the order of the texts. */
  readonly vectors: Float32Array[];
  /** As the API counts them; 0 where it does not say. */
  readonly tokens: number;
  /** What the API calls the model; undefined where it does not say. */
  readonly model: string | undefined;
}

/**
 * Reads the body of an answer to `POST /embeddings`: `{data: [{index, embedding}], model, usage: {total_tokens}}`, an embedding being
 * a list of numbers or base64 of little-endian 32-bit floats. Nothing of it is believed unchecked.
 * @param count how many texts were sent
 * @param dimensions what the model gives; undefined: whatever it gives, all the same
 * @throws EmbeddingFailure `invalid_answer`
 */
export function readAnswer(body: unknown, count: number, dimensions: number | undefined): EmbeddingAnswer {
  const { data, model, usage } = recordOf(body, 'the answer');
  if (!Array.isArray(data)) throw invalid('it has no list "data"');
  if (data.length !== count) throw invalid(`${data.length} vectors for ${count} texts`);
  const vectors: (Float32Array | undefined)[] = Array.from({ length: count });
  let length = dimensions;
  for (const [position, item] of data.entries()) {
    const { index = position, embedding } = recordOf(item, 'an item of "data"');
    if (typeof index !== 'number' || !(index in vectors) || vectors[index] !== undefined)
      throw invalid('an "index" is missing, doubled or out of range');
    const vector = vectorOf(embedding);
    length ??= vector.length;
    if (vector.length !== length) throw invalid(`a vector of ${vector.length} dimensions, not ${length}`);
    vectors[index] = unitVector(vector);
  }
  return {
    vectors: vectors.map(vector => vector ?? missing()),
    tokens: tokensOf(usage),
    model: typeof model === 'string' ? sanitise(model) : undefined,
  };
}

function vectorOf(embedding: unknown): Float32Array {
  const vector = typeof embedding === 'string' ? decodeFloats(embedding) : fromNumbers(embedding);
  if (vector.length === 0 || vector.length > MAX_DIMENSIONS)
    throw invalid(`a vector of ${vector.length} dimensions`);
  return vector;
}

function fromNumbers(embedding: unknown): Float32Array {
  if (!Array.isArray(embedding)) throw invalid('an "embedding" is neither a list of numbers nor base64');
  if (!embedding.every(component => typeof component === 'number')) throw invalid('a component is no number');
  return Float32Array.from(embedding);
}

function decodeFloats(base64: string): Float32Array {
  const bytes = Buffer.from(base64, 'base64');
  if (bytes.length % FLOAT_BYTES !== 0) throw invalid('an "embedding" is broken base64');
  // A copy at an address that floats can have. The machines that this program runs on are little-endian, as the answer is.
  return new Float32Array(Uint8Array.from(bytes).buffer);
}

/** In place. */
function unitVector(vector: Float32Array): Float32Array {
  let squares = 0;
  for (const component of vector) squares += component * component;
  const length = Math.sqrt(squares);
  if (!Number.isFinite(length)) throw invalid('a component is not finite');
  if (length === 0) throw invalid('a vector of zeros');
  for (let at = 0; at < vector.length; at++) vector[at] = (vector[at] ?? 0) / length;
  return vector;
}

function tokensOf(usage: unknown): number {
  if (typeof usage !== 'object' || usage === null) return 0;
  const { total_tokens, prompt_tokens } = usage as Record<string, unknown>;
  const tokens = total_tokens ?? prompt_tokens;
  return typeof tokens === 'number' && tokens >= 0 && Number.isFinite(tokens) ? tokens : 0;
}

function recordOf(value: unknown, what: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalid(`${what} is no object`);
  return value as Record<string, unknown>;
}

const invalid = (detail: string) => new EmbeddingFailure('invalid_answer', { detail });

function missing(): never {
  throw invalid('an "index" is missing');
}
