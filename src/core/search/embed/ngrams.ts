import { wordsOf, type Embedder } from './embedder.ts';

const DIMENSIONS = 384;
const SHORTEST_GRAM = 3;
const LONGEST_GRAM = 5;

/** Only the start of longer texts is used, in UTF-16 units, because the work is done on the calling thread. */
const MAX_UNITS = 8192;

/**
 * The fallback if the model's weights are missing. It knows spelling, not meaning, but tolerates typos, inflection and
 * compounds. Works synchronously on the calling thread.
 */
export function createNgramEmbedder(): Embedder {
  return {
    id: 'char-ngrams-v1',
    dimensions: DIMENSIONS,
    // oxlint-disable-next-line typescript/require-await -- the port is asynchronous, this one has nothing to wait for
    embed: async passages => passages.map(passage => ngramVector(wordsOf(passage))),
    close: () => Promise.resolve(),
  };
}

/** Hashes words and their character n-grams (3 to 5, word ends marked) with a sign into 384 dimensions; unit length. */
export function ngramVector(text: string): Float32Array {
  const vector = new Float32Array(DIMENSIONS);
  for (const [feature, count] of features(text)) {
    const bits = hash(feature);
    // The sign makes collisions cancel on average instead of adding up.
    const sign = bits & 1 ? 1 : -1;
    const index = (bits >>> 1) % DIMENSIONS;
    vector[index] = (vector[index] ?? 0) + sign * (1 + Math.log(count));
  }
  const length = Math.hypot(...vector);
  // Only collisions that cancel: equivalent to an empty text.
  if (length === 0) return ngramVector('');
  return vector.map(component => component / length);
}

/** Counts each feature. A text without words has one special feature, so that its vector is not zero. */
function features(text: string): Map<string, number> {
  const counts = new Map<string, number>();
  const add = (feature: string) => counts.set(feature, (counts.get(feature) ?? 0) + 1);
  for (const word of words(text)) {
    const marked = `<${word}>`;
    add(marked);
    for (let length = SHORTEST_GRAM; length <= LONGEST_GRAM; length++) {
      // The whole word is already counted.
      if (length === marked.length) break;
      for (let start = 0; start + length <= marked.length; start++) add(marked.slice(start, start + length));
    }
  }
  if (counts.size === 0) add('');
  return counts;
}

/** Yields lower-case runs of letters and digits without accents, with camelCase and snake_case split. */
function words(text: string): string[] {
  const plain = text
    .slice(0, MAX_UNITS)
    .replace(/(\p{Ll}|\p{Nd})(\p{Lu})/gu, '$1 $2')
    .normalize('NFKD')
    .replace(/\p{Mn}/gu, '')
    .toLowerCase();
  return plain.match(/[\p{L}\p{N}]+/gu) ?? [];
}

/** FNV-1a over UTF-16 units with MurmurHash3's finaliser, which spreads the low bits: 32 bits, unsigned. */
function hash(feature: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < feature.length; i++) h = Math.imul(h ^ feature.charCodeAt(i), 0x01000193);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
