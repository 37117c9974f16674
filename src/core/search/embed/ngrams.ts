import type { Embedder } from './embedder.ts';

const DIMENSIONS = 384;
const SHORTEST_GRAM = 3;
const LONGEST_GRAM = 5;

/** Only the start of a longer text counts, in UTF-16 units: the work is done on the calling thread. */
const MAX_UNITS = 8192;

/**
 * The fallback when the model's weights are missing: it knows spelling, not meaning, but forgives typing errors,
 * inflection and compounds. Works at once, on the calling thread.
 */
export function createNgramEmbedder(): Embedder {
  return {
    id: 'char-ngrams-v1',
    dimensions: DIMENSIONS,
    // oxlint-disable-next-line typescript/require-await -- the port is asynchronous, this one has nothing to wait for
    embed: async texts => texts.map(ngramVector),
    close: () => Promise.resolve(),
  };
}

/** Words and their character n-grams (3 to 5, word ends marked), hashed with a sign into 384 dimensions; unit length. */
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
  // Nothing but collisions that cancel: as good as no text at all.
  if (length === 0) return ngramVector('');
  return vector.map(component => component / length);
}

/** Counts each feature. A text without words has one feature of its own, so that its vector has a length. */
function features(text: string): Map<string, number> {
  const counts = new Map<string, number>();
  const add = (feature: string) => counts.set(feature, (counts.get(feature) ?? 0) + 1);
  for (const word of words(text)) {
    const marked = `<${word}>`;
    add(marked);
    for (let length = SHORTEST_GRAM; length <= LONGEST_GRAM; length++) {
      // The whole word is counted already.
      if (length === marked.length) break;
      for (let start = 0; start + length <= marked.length; start++) add(marked.slice(start, start + length));
    }
  }
  if (counts.size === 0) add('');
  return counts;
}

/** Lower-case runs of letters and digits without accents; camelCase and snake_case fall apart. */
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
