import { documentsOf, type Described } from '../documents.ts';
import type { QueryVectors } from '../embed/query-vectors.ts';
import { sentencesOf, tokenize } from '../tokenize.ts';
import { IndexedServers, type ScoredServers } from './indexed-servers.ts';
import type { Candidate, ToolEvidence } from './search-index.ts';
import type { VectorCache } from './vector-cache.ts';

/** Number of candidates by meaning, and as many by keyword; more only where the last ones tie. */
export const CANDIDATES_BY_EACH = 200;

/** Returns the servers that are among the best by meaning or by keyword. */
export function bestOfEach({ semantic, keyword, candidate }: ScoredServers): Candidate[] {
  const bySemantic = cutoff(semantic);
  const byKeyword = cutoff(keyword);
  const best: Candidate[] = [];
  for (let slot = 0; slot < semantic.length; slot++) {
    if ((semantic[slot] ?? 0) >= bySemantic || (keyword[slot] ?? 0) >= byKeyword) best.push(candidate(slot));
  }
  return best;
}

/** Returns the least value of the best servers; above 0, which is no evidence. */
function cutoff(values: ArrayLike<number>): number {
  return Math.max(nthLargest(values, CANDIDATES_BY_EACH), Number.MIN_VALUE);
}

/** Returns the nth largest value (1 is the largest) by quickselect (Hoare 1961); -Infinity where there are fewer. No value may be NaN. */
export function nthLargest(values: ArrayLike<number>, n: number): number {
  if (n > values.length) return -Infinity;
  const left = Float64Array.from(values);
  const wanted = values.length - n;
  let low = 0;
  let high = left.length - 1;
  while (low < high) {
    const [before, after] = partition(left, low, high);
    if (wanted <= before) high = before;
    else if (wanted >= after) low = after;
    else break;
  }
  return left[wanted] ?? -Infinity;
}

/** Moves smaller values before larger ones, around the middle value. Returns the end of the smaller and the start of the larger ones. */
function partition(values: Float64Array, low: number, high: number): [number, number] {
  const pivot = values[(low + high) >>> 1] ?? 0;
  let up = low;
  let down = high;
  while (up <= down) {
    while ((values[up] ?? 0) < pivot) up++;
    while ((values[down] ?? 0) > pivot) down--;
    if (up > down) break;
    const value = values[up] ?? 0;
    values[up++] = values[down] ?? 0;
    values[down--] = value;
  }
  return [down, up];
}

interface Parts {
  readonly dimensions: number;
  readonly queryVectors: QueryVectors;
  readonly cache: VectorCache;
}

/**
 * Compares the tools of one server with a query as the index does, in an index of nothing else. It embeds none of them, because a
 * caller who lists a server's tools must not make others wait. While a tool has no vector yet, all are compared by words alone: it
 * would lose to worse ones that have one.
 */
export async function compareTools(
  query: string,
  server: Described,
  { dimensions, queryVectors, cache }: Parts,
): Promise<readonly ToolEvidence[]> {
  const { whole, parts } = documentsOf(server);
  const prose = parts.map(part => part.prose);
  const [queries, vectors] = await Promise.all([
    queryVectors.of(sentencesOf(query)),
    cache.keptVectorsOf(prose),
  ]);
  const index = new IndexedServers(dimensions);
  const terms = parts.map(({ keywords }) => tokenize(keywords));
  index.put({ id: 'compared', whole: tokenize(whole), parts: terms, vectors });
  const cosines = index.cosines(vectors.every(({ scale }) => scale > 0) ? queries : []);
  const [candidate] = bestOfEach(index.score([...new Set(tokenize(query))], cosines));
  return candidate?.tools ?? server.tools.map((_tool, at) => ({ index: at, semantic: 0, keyword: 0 }));
}
