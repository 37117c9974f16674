import type { ScoredServers } from './indexed-servers.ts';
import { nthLargest } from './nth-largest.ts';
import type { Candidate } from './search-index.ts';

/** Candidates by meaning, and as many by keyword; more only where the last ones tie. */
export const CANDIDATES_BY_EACH = 200;

/** The servers that are among the best by meaning or by keyword. */
export function bestOfEach({ semantic, keyword, candidate }: ScoredServers): Candidate[] {
  const bySemantic = cutoff(semantic);
  const byKeyword = cutoff(keyword);
  const best: Candidate[] = [];
  for (let slot = 0; slot < semantic.length; slot++) {
    if ((semantic[slot] ?? 0) >= bySemantic || (keyword[slot] ?? 0) >= byKeyword) best.push(candidate(slot));
  }
  return best;
}

/** The value from which on a server is among the best; at least above 0, which is no evidence. */
function cutoff(values: ArrayLike<number>): number {
  return Math.max(nthLargest(values, CANDIDATES_BY_EACH), Number.MIN_VALUE);
}
