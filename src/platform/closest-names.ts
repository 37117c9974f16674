/** Longer names are compared by their beginning. Names come from outside, so the work must be bounded. */
const MAX_CHARS = 64;
const MAX_CANDIDATES = 1_000;
/** The maximum number of letter pairs compared for one name; each takes a few nanoseconds. */
const MAX_PAIRS = 200_000;

/**
 * Returns the candidates that a misspelt name may have meant, best first: by shared words (`search_issues`
 * for `issues_search`) and by edit distance.
 */
export function nearest(name: string, candidates: Iterable<string>, max: number): string[] {
  const wanted = normalise(name);
  const wantedWords = wordsOf(name);
  const scored: { candidate: string; score: number }[] = [];
  let seen = 0;
  let pairs = 0;
  for (const candidate of candidates) {
    const normal = normalise(candidate);
    pairs += wanted.length * normal.length;
    if (++seen > MAX_CANDIDATES || pairs > MAX_PAIRS) break;
    const longest = Math.max(wanted.length, normal.length, 1);
    const letters = 1 - distance(wanted, normal) / longest;
    const words = overlap(wantedWords, wordsOf(candidate));
    const score = Math.max(letters, words);
    if (score >= 0.5) scored.push({ candidate, score: score + letters / 100 });
  }
  return scored
    .sort((a, b) => b.score - a.score)
    .slice(0, max)
    .map(({ candidate }) => candidate);
}

const normalise = (name: string) =>
  name
    .slice(0, MAX_CHARS)
    .toLowerCase()
    .replaceAll(/[\s_.-]/g, '');

const wordsOf = (name: string): Set<string> =>
  new Set(
    name
      .slice(0, MAX_CHARS)
      .split(/[^\p{L}\p{N}]+|(?<=[\p{Ll}\p{N}])(?=\p{Lu})/u)
      .filter(word => word !== '')
      .map(word => word.toLowerCase().replace(/(?<=..)s$/, '')),
  );

/** Returns the share of words that both have in common. */
function overlap(a: ReadonlySet<string>, b: ReadonlySet<string>): number {
  let shared = 0;
  for (const word of a) if (b.has(word)) shared++;
  return shared / Math.max(a.size + b.size - shared, 1);
}

/** Returns the Levenshtein distance. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
