import { tokenize } from './tokenize.ts';

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

/** How a query names a server: not at all, among other words, or with nothing else. */
export type Naming = 'not' | 'among' | 'alone';

/** The terms of a server's name in each of its spellings: as it stands, in small letters (waystation), without what is in brackets. */
export function spellingsOf(serverName: string): readonly ReadonlySet<string>[] {
  const short = withoutBrackets(serverName);
  const spellings = new Set([serverName, serverName.toLowerCase(), short, short.toLowerCase()]);
  return [...spellings].map(spelling => new Set(tokenize(spelling))).filter(({ size }) => size > 0);
}

/** A name less what stands in brackets at its end. */
export const withoutBrackets = (name: string): string => name.replace(/\s*\([^()]*\)\s*$/, '');

/**
 * Tells of a server's name, given as its spellings, how the query names it: the words of one are all in it, and a third of its
 * own words at least. Who names a server wants it, whatever else the evidence says.
 */
export function namesIn(query: string): (spellings: readonly ReadonlySet<string>[]) => Naming {
  const asked = [query, query.toLowerCase()].map(text => new Set(tokenize(text)));
  const naming = (name: ReadonlySet<string>): Naming => {
    const all = asked.find(words => [...name].every(term => words.has(term)));
    if (!all || name.size * 3 < all.size) return 'not';
    return name.size === all.size ? 'alone' : 'among';
  };
  return spellings => {
    const found = new Set(spellings.map(naming));
    if (found.has('alone')) return 'alone';
    return found.has('among') ? 'among' : 'not';
  };
}

/** A letter or digit of a script that puts spaces between words. */
const IN_WORD =
  /[[\p{L}\p{N}]--[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}]]/v;
const SENTENCE_ENDS = new Set('.!?…。！？\n');
/** What may stand between the end of a sentence and the first word of the next. */
const OPENS = new Set(' \t\r\u00A0\u3000"\'“„«‘([-–*•');
/** With a colon, or in another script. */
const GOES_ON_OTHERWISE = /^\s*[:：]|^[^\p{L}]*(?!\p{Script=Latin})\p{L}/u;

/**
 * Tells of a server's name whether the query, of any length and language, has it as it is written, with a capital letter,
 * elsewhere than where a sentence begins: there every word has one, unless the sentence goes on in another script. A query most
 * of whose words have one says nothing. Takes time in proportion to the query.
 */
export function mentionsIn(query: string): (serverName: string) => boolean {
  const words = query.match(/\p{L}+/gu) ?? [];
  const isTitle = words.length > 3 && words.filter(word => /^\p{Lu}/u.test(word)).length * 2 > words.length;
  if (isTitle) return () => false;
  return serverName => {
    const name = withoutBrackets(serverName);
    if (name.length < 3 || !/\p{Lu}/u.test(name)) return false;
    for (let at = query.indexOf(name); at >= 0; at = query.indexOf(name, at + name.length)) {
      const end = at + name.length;
      const isWhole = !IN_WORD.test(query.charAt(at - 1)) && !IN_WORD.test(query.charAt(end));
      if (isWhole && (!beginsSentence(query, at) || GOES_ON_OTHERWISE.test(query.slice(end)))) return true;
    }
    return false;
  };
}

function beginsSentence(query: string, at: number): boolean {
  let before = at - 1;
  while (before >= 0 && OPENS.has(query.charAt(before))) before--;
  return before < 0 || SENTENCE_ENDS.has(query.charAt(before));
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
