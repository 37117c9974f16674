import { QueryAdapter } from '../../src/core/search/embed/minilm/embedder.ts';
import { correctForTextCount } from '../../src/core/search/tuning.ts';
import { WEIGHTS } from '../../src/core/search/fusion.ts';
import { randomFrom, shuffled } from '../random.ts';
import type { TuneQuery, TuneSet } from './tune-set.ts';

/** See `correctForTextCount`: the mean quality of the sets is flat from .06 to .12, and a tenth of a point from its best here (bench/RESULTS.md). */
export const SPREAD = 0.08;

/** What a batch of training asks of a set. */
interface Lesson {
  readonly set: TuneSet;
  readonly queries: readonly TuneQuery[];
}

export interface TrainingOptions {
  readonly epochs: number;
  readonly batch: number;
  readonly learningRate: number;
  /** Divides cosines in the softmax. */
  readonly temperature: number;
  /** What the normalised keyword score adds to a logit: what keywords find already need not be learned. */
  readonly keyword: number;
  /** Pull towards the identity. */
  readonly decay: number;
  /** Queries of one set and epoch at most, so that the largest set does not decide alone. */
  readonly perSet: number;
  /** How far of the way from the identity to what was learned: less generalises better. */
  readonly share: number;
  readonly seed: number;
}

const TRAINING: TrainingOptions = {
  epochs: 5,
  batch: 64,
  learningRate: 1e-3,
  temperature: 0.05,
  keyword: 6,
  decay: 0.2,
  perSet: 1200,
  share: 0.75,
  seed: 1,
};

/**
 * Learns the square matrix W of `QueryAdapter` by InfoNCE: of all servers of the same catalogue, those that answer a query
 * shall have the highest cos(W q, part) of their best part. AdamW, with the weight decay towards the identity.
 */
export function trainAdapter(
  lessons: readonly Lesson[],
  dimensions: number,
  options: TrainingOptions = TRAINING,
): QueryAdapter {
  const random = randomFrom(options.seed);
  const size = dimensions * dimensions;
  // W - identity, row-major, and AdamW's two moments.
  const delta = new Float32Array(size);
  const first = new Float32Array(size);
  const second = new Float32Array(size);
  const plan = planOf(lessons, options, random);
  for (const [step, lesson] of plan.entries()) {
    const gradient = gradientOf(lesson, new QueryAdapter(delta, dimensions), options);
    const rate = options.learningRate * (1 - step / plan.length) * Math.min(1, (step + 1) / 20);
    const bias1 = 1 - 0.9 ** (step + 1);
    const bias2 = 1 - 0.999 ** (step + 1);
    for (let i = 0; i < size; i++) {
      const g = gradient[i] ?? 0;
      const m = (first[i] = 0.9 * (first[i] ?? 0) + 0.1 * g);
      const v = (second[i] = 0.999 * (second[i] ?? 0) + 0.001 * g * g);
      const d = delta[i] ?? 0;
      delta[i] = d - rate * (m / bias1 / (Math.sqrt(v / bias2) + 1e-8) + options.decay * d);
    }
  }
  return new QueryAdapter(
    delta.map(value => value * options.share),
    dimensions,
  );
}

/** The batches of all epochs, each of one set, in random order within an epoch. */
function planOf(
  lessons: readonly Lesson[],
  { epochs, batch, perSet }: TrainingOptions,
  random: () => number,
): Lesson[] {
  return Array.from({ length: epochs }, () => {
    const batches = lessons.flatMap(({ set, queries }) => {
      const chosen = shuffled(queries, random).slice(0, perSet);
      return Array.from({ length: Math.ceil(chosen.length / batch) }, (_, at) => ({
        set,
        queries: chosen.slice(at * batch, (at + 1) * batch),
      }));
    });
    return shuffled(batches, random);
  }).flat();
}

/** The gradient of the batch's mean loss by W. */
function gradientOf({ set, queries }: Lesson, adapter: QueryAdapter, options: TrainingOptions): Float32Array {
  const { dimensions } = set.store;
  const gradient = new Float32Array(dimensions * dimensions);
  for (const query of queries) {
    const adapted = query.sentences.map(sentence => adapter.apply(sentence));
    const towards = gradientsBySentence(set, query, adapted, options);
    for (const [at, sentence] of query.sentences.entries()) {
      const by = towards[at];
      const mapped = adapted[at];
      if (by && mapped) addOuterProduct(gradient, sentence, mapped, by, adapter);
    }
  }
  return gradient.map(value => value / queries.length);
}

/** The gradient of a query's loss by each of its adapted vectors. */
function gradientsBySentence(
  set: TuneSet,
  query: TuneQuery,
  adapted: readonly Float32Array[],
  options: TrainingOptions,
): Float32Array[] {
  const { cosine, sentence, row } = bestParts(set, adapted);
  const towards = adapted.map(() => new Float32Array(set.store.dimensions));
  for (const [server, pull] of pulls(query, cosine, options)) {
    const target = towards[sentence[server] ?? 0];
    const part = set.vectors[row[server] ?? 0];
    if (!target || !part) continue;
    for (const [i, value] of part.values.entries()) target[i] = (target[i] ?? 0) + pull * part.scale * value;
  }
  return towards;
}

/** By server: its best cosine with any sentence, made comparable, and which sentence and row gave it. */
export function bestParts(
  { servers, start, store }: TuneSet,
  sentences: readonly Float32Array[],
  spread = SPREAD,
) {
  const cosine = new Float32Array(servers).fill(-1);
  const sentence = new Uint8Array(servers);
  const row = new Uint32Array(servers);
  for (const [at, vector] of sentences.entries()) {
    const cosines = store.scan(vector);
    for (let server = 0; server < servers; server++) {
      for (let r = start[server] ?? 0; r < (start[server + 1] ?? 0); r++) {
        const value = cosines[r] ?? 0;
        if (value <= (cosine[server] ?? 0)) continue;
        cosine[server] = value;
        sentence[server] = at;
        row[server] = r;
      }
    }
  }
  return { cosine: comparable(cosine, start, spread), sentence, row };
}

const comparable = (cosine: Float32Array, start: Uint32Array, spread: number): Float32Array =>
  cosine.map((best, server) =>
    correctForTextCount(best, (start[server + 1] ?? 0) - (start[server] ?? 0), spread),
  );

/** By how much each server's cosine should fall (above 0) or rise, for those where it matters. */
function pulls(query: TuneQuery, cosine: Float32Array, options: TrainingOptions): [number, number][] {
  const best = Math.max(WEIGHTS.fullKeyword, ...query.keyword);
  const logits = Float64Array.from(
    cosine,
    (value, server) => value / options.temperature + (options.keyword * (query.keyword[server] ?? 0)) / best,
  );
  const highest = logits.reduce((a, b) => Math.max(a, b));
  const shares = logits.map(logit => Math.exp(logit - highest));
  const all = shares.reduce((sum, share) => sum + share, 0);
  let relevant = 0;
  for (const server of query.relevant) relevant += shares[server] ?? 0;
  const found: [number, number][] = [];
  for (const [server, share] of shares.entries()) {
    const wanted = query.relevant.has(server) ? share / Math.max(relevant, 1e-30) : 0;
    const pull = (share / all - wanted) / options.temperature;
    if (Math.abs(pull) > 1e-4) found.push([server, pull]);
  }
  return found;
}

/** Adds (d loss / d W q) ⊗ q, where `towards` is the gradient by the unit vector `adapted` of W q. */
function addOuterProduct(
  gradient: Float32Array,
  sentence: Float32Array,
  adapted: Float32Array,
  towards: Float32Array,
  adapter: QueryAdapter,
): void {
  const along = adapted.reduce((sum, value, i) => sum + value * (towards[i] ?? 0), 0);
  const length = adapter.lengthOf(sentence);
  const width = sentence.length;
  for (let i = 0; i < width; i++) {
    const g = ((towards[i] ?? 0) - (adapted[i] ?? 0) * along) / length;
    if (g === 0) continue;
    for (let j = 0; j < width; j++) {
      gradient[i * width + j] = (gradient[i * width + j] ?? 0) + g * (sentence[j] ?? 0);
    }
  }
}
