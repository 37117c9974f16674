import type { ScoredServer } from './indexed-servers.ts';

/** Candidates by meaning, and as many by keyword; more only where the last ones tie. */
export const CANDIDATES_BY_EACH = 200;

/** The servers that are among the best by meaning or by keyword. */
export function bestOfEach(scored: readonly ScoredServer[]): ScoredServer[] {
  const bySemantic = cutoff(scored.map(({ semantic }) => semantic));
  const byKeyword = cutoff(scored.map(({ keyword }) => keyword));
  return scored.filter(({ semantic, keyword }) => semantic >= bySemantic || keyword >= byKeyword);
}

/** The value from which on a server is among the best; at least above 0, which is no evidence. */
function cutoff(values: readonly number[]): number {
  const sorted = Float64Array.from(values).sort();
  return Math.max(sorted[sorted.length - CANDIDATES_BY_EACH] ?? 0, Number.MIN_VALUE);
}
