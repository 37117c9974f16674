import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import minilm from './embed/minilm/tuning.json' with { type: 'json' };
import type { Place } from './fusion.ts';
import type { Findings } from './index/search-index.ts';
import { largest } from './index/vectors.ts';
import { KnownRequests, type Nearness } from './known-requests.ts';

/** Learned values for one embedder (`bench/tune.ts`, `bench/tune-general.ts`); they do not apply to other embedders. */
interface Tuning {
  /** The spread of cosines between a query and irrelevant texts, see `correctForTextCount`. */
  readonly spread: number;
  readonly calibration: readonly CalibrationPoint[];
  readonly answerability: LinearTest;
  readonly general: GeneralSearchTuning;
}

/** A cosine and the share of relevant servers among those with that cosine. Both columns of a table ascend. */
export type CalibrationPoint = readonly [cosine: number, probability: number];

/** The vectors of `KnownRequests`, in the order of `bench/tune-general.ts`. */
const KNOWN_REQUESTS = path.join(import.meta.dirname, 'embed/minilm/known-requests.bin');

let loaded: Tuning | undefined;

/**
 * Returns the tuning of an embedder; undefined for n-grams and for API models, which were never tuned.
 * @throws Error if its file is missing or damaged
 */
export const tuningOf = (embedderId: string): Tuning | undefined =>
  embedderId === minilm.embedder ? (loaded ??= load()) : undefined;

function load(): Tuning {
  const { spread, calibration, answerability, general } = minilm;
  const bytes = readFileSync(KNOWN_REQUESTS);
  if (createHash('sha256').update(bytes).digest('hex') !== general.sha256)
    throw new Error(`${KNOWN_REQUESTS} is damaged. Install Switchboard again.`);
  const sizes = { dimensions: answerability.request.length, questions: general.questions };
  return {
    spread,
    calibration: calibration.map(([cosine = 0, probability = 0]) => [cosine, probability] as const),
    answerability,
    general: { ...general, known: new KnownRequests(bytes, sizes) },
  };
}

/**
 * Makes the best cosine of a server comparable between servers. The best of n draws grows like √ln n by chance, so without
 * the correction a server with many tools would rank above one that is known only by its description.
 * @param texts the number of texts, at least 1
 * @param spread of the embedder's cosines, see `Tuning`
 */
export function correctForTextCount(cosine: number, texts: number, spread: number): number {
  return cosine - spread * Math.sqrt(Math.log(texts));
}

/**
 * Returns the probability (0 to 1) that a server with this cosine is relevant, by linear interpolation in the table. The
 * table is extended to (-1, 0) and (1, 1). Without a table the result is the cosine itself, at least 0.
 */
export function calibrate(cosine: number, table: readonly CalibrationPoint[] | undefined): number {
  if (!table || Number.isNaN(cosine)) return Math.min(1, Math.max(0, cosine || 0));
  let below: CalibrationPoint = [-1, 0];
  for (const point of [...table, [1, 1] as const]) {
    if (cosine <= point[0]) return interpolate(below, point, cosine);
    below = point;
  }
  return 1;
}

function interpolate([x0, y0]: CalibrationPoint, [x1, y1]: CalibrationPoint, x: number): number {
  if (x <= x0) return y0;
  return y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}

/**
 * A linear function of a request and of the best evidence for it, at least 0 if something holds of the request. `bench/tune.ts`
 * learns it from labelled requests.
 */
export interface LinearTest {
  readonly bias: number;
  /** Weight of the best cosine of any server. */
  readonly semantic: number;
  /** Weight of the best keyword score of any server. */
  readonly keyword: number;
  /** Weight of each component of the request's vector. */
  readonly request: readonly number[];
}

/** When a general search of the web serves a request better than any other server: if a linear function is at least 0. */
export interface GeneralTest {
  readonly bias: number;
  /** Weights of the best cosine with what any server says of itself, and of the best keyword score. */
  readonly direct: number;
  readonly keyword: number;
  /** Weights of the nearness to known requests. */
  readonly question: number;
  readonly other: number;
}

interface GeneralSearchTuning extends GeneralTest {
  readonly known: KnownRequests;
  /** From this value of the test on, a general search is among the first three. */
  readonly likely: number;
  /** The least cosine of a tool of a general search with a request for one. */
  readonly tool: number;
}

/** Returns the value of the test for a request. */
export const generalValueOf = (
  { direct, keyword }: Pick<RequestEvidence, 'direct' | 'keyword'>,
  { question, other }: Nearness,
  test: GeneralTest,
): number =>
  test.bias + test.direct * direct + test.keyword * keyword + test.question * question + test.other * other;

/** A request, and the best evidence for it of any server. */
interface RequestEvidence {
  readonly semantic: number;
  /** The best cosine with a server's own text or one of its tools; examples do not count. */
  readonly direct: number;
  readonly keyword: number;
  /** The mean of the unit vectors of its sentences. */
  readonly vector: Float32Array;
}

/** Returns the value of a test for a request. */
export function valueOf(
  { semantic, keyword, vector }: Omit<RequestEvidence, 'direct'>,
  test: LinearTest,
): number {
  let value = test.bias + test.semantic * semantic + test.keyword * keyword;
  for (const [at, weight] of test.request.entries()) value += weight * (vector[at] ?? 0);
  return value;
}

/** Returns the mean of vectors of the same length, of which there is at least one. */
export function meanOf(vectors: readonly Float32Array[]): Float32Array {
  const mean = new Float32Array(vectors[0]?.length ?? 0);
  for (const vector of vectors)
    for (const [at, value] of vector.entries()) mean[at] = (mean[at] ?? 0) + value / vectors.length;
  return mean;
}

/**
 * How far below 0 the answerability of a question may be that a general search leads for: what other servers do says little of it. Of
 * 1,600 such questions 5 in place of 10 % are turned away, and one more of 150 requests that nothing serves gets an answer.
 */
const DOUBT = 1;

interface Verdict {
  /** False: no server can probably serve the request. */
  readonly isAnswerable: boolean;
  /** True: a general search of the web can serve it, even if no other server can. */
  readonly mayBeSearched: boolean;
  /** The place of a general search among the servers; undefined: as ranked. */
  readonly general: Place | undefined;
}

const UNKNOWN: Verdict = { isAnswerable: true, mayBeSearched: false, general: undefined };

/**
 * Judges a request by what an index finds for it. Without vectors, or without a tuning of the embedder, it counts as answerable.
 * @param isClause true: `general` is not wanted
 */
export function verdictOn(
  { candidates, vectors }: Findings,
  tuning: Tuning | undefined,
  isClause = false,
): Verdict {
  if (!tuning || vectors.length === 0) return UNKNOWN;
  const evidence = {
    semantic: largest(candidates.map(({ semantic }) => semantic)),
    direct: largest(candidates.map(({ direct }) => direct)),
    keyword: largest(candidates.map(({ keyword }) => keyword)),
    vector: meanOf(vectors),
  };
  const answerable = valueOf(evidence, tuning.answerability);
  const general = isClause ? undefined : placeOfGeneral(evidence, tuning.general);
  return {
    isAnswerable: answerable >= 0,
    mayBeSearched: general === 'first' && answerable >= -DOUBT,
    general,
  };
}

function placeOfGeneral(evidence: RequestEvidence, test: GeneralSearchTuning): Place | undefined {
  const value = generalValueOf(evidence, test.known.nearness(evidence.vector), test);
  if (value >= 0) return 'first';
  return value >= test.likely ? 'third' : undefined;
}
