import { tokenize } from './text.ts';

/**
 * Whether anything in the catalogue may serve a request, as a linear function of what is known about it; learned by
 * `bench/tune.ts` from requests with known answers and from requests that nothing can serve.
 */
export interface Answerability {
  readonly bias: number;
  /** By the best cosine of any server. */
  readonly semantic: number;
  /** By the best keyword score of any server. */
  readonly keyword: number;
  /** By each component of the request's vector. */
  readonly request: readonly number[];
}

interface RequestEvidence {
  readonly candidates: readonly { readonly semantic: number; readonly keyword: number }[];
  /** The request's vectors, one a sentence, of unit length. */
  readonly vectors: readonly Float32Array[];
}

/**
 * Tells of a server's name whether the query names it: the words of the name are all in it, and a third of its own words at
 * least. Who names a server wants it, whatever else the evidence says.
 */
export function namesIn(query: string): (serverName: string) => boolean {
  const asked = new Set(tokenize(query));
  return serverName => {
    const name = new Set(tokenize(serverName));
    return name.size > 0 && name.size * 3 >= asked.size && [...name].every(term => asked.has(term));
  };
}

/** True where a good candidate is likely, or where nobody can tell: without vectors, and without a table for the embedder. */
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
