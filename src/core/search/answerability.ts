/**
 * A linear function that says whether anything in the catalogue may serve a request. `bench/tune.ts` learns it from requests with
 * known answers and from requests that nothing can serve.
 */
export interface Answerability {
  readonly bias: number;
  /** Weight of the best cosine of any server. */
  readonly semantic: number;
  /** Weight of the best keyword score of any server. */
  readonly keyword: number;
  /** Weight of each component of the request's vector. */
  readonly request: readonly number[];
}

interface RequestEvidence {
  readonly candidates: readonly { readonly semantic: number; readonly keyword: number }[];
  /** One vector of unit length for each sentence of the request. */
  readonly vectors: readonly Float32Array[];
}

/** Says whether a good candidate is likely. Returns true where nobody can tell: without vectors, or without a table for the embedder. */
export function isAnswerable(
  { candidates, vectors }: RequestEvidence,
  table: Answerability | undefined,
): boolean {
  if (!table || vectors.length === 0) return true;
  const best = (kind: 'semantic' | 'keyword') =>
    candidates.reduce((highest, candidate) => Math.max(highest, candidate[kind]), 0);
  let score = table.bias + table.semantic * best('semantic') + table.keyword * best('keyword');
  for (const vector of vectors) {
    let sum = 0;
    for (const [i, weight] of table.request.entries()) sum += weight * (vector[i] ?? 0);
    score += sum / vectors.length;
  }
  return score >= 0;
}
