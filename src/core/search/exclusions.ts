import { EXCLUSION_PHRASES, type ExclusionPhrase } from './exclusion-words.ts';
import { isDistinctive, spaced, type NameForms } from './names.ts';

/** The wanted part of a request, and the names that it excludes. */
export interface Wish {
  readonly wanted: string;
  readonly excluded: readonly string[];
}

/** A part of a query that excludes names. */
interface Exclusion {
  readonly from: number;
  readonly to: number;
  readonly names: readonly string[];
}

/**
 * Tells what the catalogue knows of words in lower case, with one space between them: a whole name, or a distinctive part of one.
 */
type KnownAs = (words: string) => 'name' | 'part' | undefined;

/** Words that ask for nothing. */
const FILLERS =
  /(?<!\p{L})(?:please|pls|thanks|thank\s+you|bitte|danke|i|we|it|but|and|all|(?:every|any|some)thing|any\s+(?:tool|app|service))(?!\p{L})/giu;

/**
 * Splits a query into what is wanted, and what it excludes ("without using PayPal", "anything but gmail", "no Slack, please"). Nothing is
 * excluded by a query that says nothing else. What a name is, `ExclusionPhrase.takes` says.
 */
export function wantedAndExcluded(query: string, knownAs: KnownAs): Wish {
  const found = EXCLUSION_PHRASES.flatMap(phrase => exclusionsBy(phrase, query, knownAs)).toSorted(
    (one, other) => one.from - other.from,
  );
  if (found.length === 0) return { wanted: query, excluded: [] };
  let wanted = '';
  let end = 0;
  for (const { from, to } of found) {
    if (from >= end) wanted += `${query.slice(end, from)} `;
    end = Math.max(end, to);
  }
  wanted = `${wanted}${query.slice(end)}`.trim();
  const isAll = !/[\p{L}\p{N}]/u.test(wanted.replace(FILLERS, ''));
  if (isAll) return { wanted: query, excluded: [] };
  return { wanted, excluded: [...new Set(found.flatMap(({ names }) => names))] };
}

function exclusionsBy(phrase: ExclusionPhrase, query: string, knownAs: KnownAs): Exclusion[] {
  const find = phrase.stands === 'before' ? namesAfter : namesBefore;
  return [...query.matchAll(phrase.words)].flatMap(({ 0: words, index }) => {
    const one = find(query, { from: index, to: index + words.length }, { takes: phrase.takes, knownAs });
    if (!one) return [];
    const [before, after] = [query.slice(0, one.from), query.slice(one.to)];
    const found = { phrase, before, after, knownAs };
    return OPPOSITES.some(says => says(found)) ? [] : [one];
  });
}

interface Span {
  readonly from: number;
  readonly to: number;
}

interface Names extends Pick<ExclusionPhrase, 'takes'> {
  readonly knownAs: KnownAs;
}

/** A word of a name, which may be marked, and in which a full stop may stand, as in "Monday.com"; Latin letters end at other ones. */
const WORD = String.raw`(?!\S+@)["'“„«\x60*@]?(?:[\p{Script=Latin}\p{N}](?:[\p{Script=Latin}\p{N}\p{M}+&'’_\-]|\.(?=[\p{L}\p{N}]))*|(?!\p{Script=Latin})\p{Lu}(?:[^\s,;:!?.()]|\.(?=\S))*)["”“»\x60*]?`;
/** The number of words that a name may have. */
const MOST_WORDS = 3;
/** In characters, of a name before a phrase, and of what joins it with another. */
const LONGEST_NAME = 100;
const LONGEST_JOINT = 20;
const WORDS = new RegExp(String.raw`\s*(${WORD}(?:\s+${WORD}){0,${MOST_WORDS - 1}})`, 'uy');
const WORDS_BEFORE = new RegExp(
  String.raw`(?<![\p{Script=Latin}\p{N}])(${WORD}(?:\s+${WORD}){0,${MOST_WORDS - 1}})\s*$`,
  'u',
);
/** Matches a capitalized word, unless it is one that may begin what follows a name. */
const IS_CAPITALIZED =
  /^(?!(?:I|[Aa]nd|AND|[Oo]r|OR|[Bb]ut|BUT|[Pp]lease|PLEASE|[Tt]hanks)$)["'“„«\x60*@]?\p{Lu}/u;
const IS_LATIN = /\p{Script=Latin}/u;
const MARKS = /^["'“„«\x60*@]+|(?:['’]\p{L}*)?["”“»\x60*]*$/gu;
/** Matches what ends a clause. */
const CLAUSE_END =
  /^\s*(?:$|[.,;:!?)\n。、，！？–—]|(?:please|pls|thanks|bitte|svp|por favor|per favore|proszę|tack|and|und)(?!\p{L}))/iu;

const OR =
  /,?\s+(?:n?or|oder|ou|of|lub|eller|o|ni|né|ani|atau|hoặc|veya|или|або|أو)\s+|\s*(?:\/|或者?|和|、)\s*/iuy;
const AND = /(?<comma>,?)\s+(?:and|und|et|y|e|en|i|och|dan|và|ve|и|та|і)\s+/iuy;
const COMMA = /\s*[,،]\s*/uy;

/** A name of a list, and what stands before it. */
interface Item {
  readonly text: string;
  readonly to: number;
  readonly joint: Joint;
}

/**
 * Reads one name behind a phrase, or several of which none is wanted. After "and", something else may follow: "not in Jira and Slack gets
 * the link".
 */
function namesAfter(query: string, { from, to }: Span, wanted: Names): Exclusion | undefined {
  const items = itemsAt(query, to, wanted);
  const endsClause = ({ to: end }: Pick<Item, 'to'>) => CLAUSE_END.test(query.slice(end));
  const isIn = (item: Item, at: number) =>
    item.joint === 'none' ||
    item.joint === 'or' ||
    (item.joint === 'comma' && /^\s*[.!?]?\s*$/u.test(query.slice(item.to))) ||
    (item.joint === 'and' && endsClause(item)) ||
    (item.joint === ', and' && endsClause(item) && items.slice(0, at).some(({ joint }) => joint === 'comma'));
  const names = items.slice(0, 1 + items.findLastIndex(isIn));
  const last = names.at(-1);
  if (!last || (wanted.takes === 'known' && !endsClause(last))) return undefined;
  return { from, to: last.to, names: names.map(({ text }) => text) };
}

function itemsAt(query: string, from: number, wanted: Names): Item[] {
  const items: Item[] = [];
  let next: ReturnType<typeof jointAt> = { joint: 'none', to: from };
  while (next) {
    // Beside a name that is known, a capitalized word is one.
    const takes = wanted.takes === 'known' && items.length > 0 ? 'names' : wanted.takes;
    const name = nameAt(query, next.to, { ...wanted, takes });
    if (!name) break;
    items.push({ ...name, joint: next.joint });
    next = jointAt(query, name.to);
  }
  return items;
}

type Joint = 'none' | 'or' | 'and' | ', and' | 'comma';

function jointAt(query: string, at: number): { readonly joint: Joint; readonly to: number } | undefined {
  for (const expected of [OR, AND, COMMA]) {
    expected.lastIndex = at;
    const match = expected.exec(query);
    if (!match) continue;
    const to = at + match[0].length;
    if (expected === COMMA) return { joint: 'comma', to };
    if (expected === OR) return { joint: 'or', to };
    return { joint: match.groups?.['comma'] === '' ? 'and' : ', and', to };
  }
  return undefined;
}

function nameAt(
  query: string,
  at: number,
  names: Names,
): { readonly text: string; readonly to: number } | undefined {
  WORDS.lastIndex = at;
  const match = WORDS.exec(query)?.[1];
  if (match === undefined) return undefined;
  const start = WORDS.lastIndex - match.length;
  const words = [...match.matchAll(/\S+/gu)];
  const endOf = (count: number) => {
    const last = words[count - 1];
    return last ? start + last.index + last[0].length : start;
  };
  const count = lengthOf(
    words.map((_last, index) => words.slice(0, index + 1).map(([word]) => word)),
    { ...names, endsClause: length => CLAUSE_END.test(query.slice(endOf(length))) },
  );
  return count === 0 ? undefined : { text: bare(query.slice(start, endOf(count))), to: endOf(count) };
}

/** Matches what joins two names, of which the second stands before a phrase. */
const JOINT_BEFORE = /(?:,\s*|\s+(?:veya|ya\s+da|ve|या|और)\s+|[や、と和或]|(?:이나|나|와|과|랑)\s*)$/u;

/** Reads one name before a phrase, or several of which none is wanted. */
function namesBefore(query: string, { from, to }: Span, names: Names): Exclusion | undefined {
  const found: string[] = [];
  let start = from;
  let end: number | undefined = from;
  while (end !== undefined) {
    const one = nameBefore(query, end, names);
    if (!one) break;
    found.unshift(one.text);
    start = one.from;
    const joint = JOINT_BEFORE.exec(query.slice(Math.max(0, start - LONGEST_JOINT), start));
    end = joint ? start - joint[0].length : undefined;
  }
  return found.length === 0 ? undefined : { from: start, to, names: found };
}

function nameBefore(
  query: string,
  to: number,
  names: Names,
): { readonly text: string; readonly from: number } | undefined {
  const [text = '', match] = WORDS_BEFORE.exec(query.slice(Math.max(0, to - LONGEST_NAME), to)) ?? [];
  const words = match?.split(/\s+/u) ?? [];
  const count = lengthOf(
    words.map((_first, index) => words.slice(words.length - 1 - index)),
    { ...names, endsClause: () => true },
  );
  if (count === 0) return undefined;
  const [own = ''] = new RegExp(String.raw`(?:\S+\s*){${count}}$`, 'u').exec(text) ?? [];
  return { text: words.slice(-count).map(bare).join(' '), from: to - own.length };
}

/**
 * Returns of how many words a name consists; 0 if there is none.
 * @param runs the words that may be one, by their number less 1
 */
function lengthOf(
  runs: readonly (readonly string[])[],
  { takes, knownAs, endsClause }: Names & { readonly endsClause: (count: number) => boolean },
): number {
  const kinds = runs.map(words => knownAs(words.map(bare).join(' ').toLowerCase()));
  const isKnown = (words: readonly string[], count: number) => {
    const text = words.map(bare).join(' ');
    const known = kinds[count - 1];
    if (known === undefined || IS_CAPITALIZED.test(words[0] ?? '')) return known !== undefined;
    // An ordinary word, or a part of a name, may belong to the next word: "not in linear algebra".
    return (known === 'name' && isDistinctive(spaced(text))) || (takes !== 'known' && endsClause(count));
  };
  const known = 1 + runs.findLastIndex((words, at) => isKnown(words, at + 1));
  if (takes === 'known' || kinds[known - 1] === 'name') return known;
  const capitalized = runs.findIndex(words => !words.every(word => IS_CAPITALIZED.test(word)));
  const isLatin = takes === 'latin' && IS_LATIN.test(runs[0]?.[0] ?? '');
  return Math.max(known, capitalized < 0 ? runs.length : capitalized, Number(isLatin));
}

const bare = (word: string): string => word.replace(MARKS, '');

/** Matches a preposition and what follows it. */
const PLACE = new RegExp(
  String.raw`(?<!(?<!\p{L})(?:not|nicht|pas|no|não|non|niet|nie|inte|не)\s+)(?<!\p{L})(?:in|im|on|auf|dans|sur|en|no|na|em|op|w|i|på|в|у|на|di|trên)\s+(${WORD})`,
  'giu',
);
/** Matches the start of a sentence that tells something in place of asking for it. */
const STATEMENT =
  /(?<!\p{L})(?:that|who|which|they|users|customers|companies|pass(?:es)?|works?|laufen|passent|проходят|проходять)(?!\p{L})[^.!?\n]*$/iu;
const ALL =
  /(?<!\p{L})(?:all|every\p{L}*|anyone|anybody|alles?|tou(?:s|te?s?)|tod[oa]s?|tutt[oiea]|tudo|все|всё|всі|усі|tüm|semua)(?!\p{L})[^.!?\n]*$|(?:所有|全部|すべて|全て|모든)/iu;
const QUESTION =
  /(?<!\p{L})(?:why|reasons?|explain\p{L}*|about|compare|warum|wieso|darüber|pourquoi|por\s+qué|perché|por\s+que|waarom|dlaczego|varför|почему|чому|neden)(?!\p{L})/iu;
/** Matches what introduces a text to write. */
const CONTENT =
  /(?<!\p{L})(?:to\p{L}*do|task|note|message|e?-?mail|issue|bug|ticket|title|titled|to\s+\p{L}+)\s*:[^:]*$/iu;
/** Matches what stands between quotes, of which “ closes „ and opens others. */
const QUOTED = /"[^"]*"|„[^“”]*[“”]|“[^”]*”|«[^»]*»/gu;
/** Matches the verb of "stattfinden", whose prefix is also a word for "instead of". */
const TAKES_PLACE = /(?<!\p{L})(?:finde[nt]?|fand(?:en)?)(?!\p{L})/iu;
const PORTUGUESE = /(?<!\p{L})(?:que|uma?|para|com|não|os|as|do|da|meu|minha|mande|envie|crie)(?!\p{L})/iu;
const NOTHING =
  /(?<!\p{L})(?:nothing|nobody|none|nichts|niemand|rien|personne|nada|nadie|ninguém|niente|nessuno|niets|nic|nikt|inget|ingen|ingenting|ничего|никто|нічого|ніхто)(?!\p{L})/iu;
const NOT =
  /(?<!\p{L})(?:never|not|cannot|\p{L}+n['’]t|cant|dont|wont|nothing|nicht|nie|kein\p{L}*|pas|jamais|no|nunca|non|mai|não|niet|nooit|inte|tidak|не|никогда|ніколи)(?!\p{L})[^.;!?\n]*$/iu;

/** A phrase that was found, in its query. */
interface Found {
  readonly phrase: ExclusionPhrase;
  readonly before: string;
  readonly after: string;
  readonly knownAs: KnownAs;
}

/** In which requests a phrase excludes nothing. */
const OPPOSITES: readonly ((found: Found) => boolean)[] = [
  // "I can't work without Slack", "never use anything other than Slack"
  ({ phrase: { kind }, before }) => (kind === 'without' || kind === 'except') && NOT.test(before),
  // "The contact is in Gmail but not in HubSpot, add it"
  ({ phrase: { kind }, before, knownAs }) =>
    kind === 'but' &&
    [...before.matchAll(PLACE)].some(
      ([, word = '']) => IS_CAPITALIZED.test(word) || knownAs(bare(word).toLowerCase()) === 'name',
    ),
  // "tests pass locally but not in GitHub Actions", "companies that use Salesforce instead of HubSpot"
  ({ phrase: { kind }, before }) => (kind === 'but' || kind === 'instead') && STATEMENT.test(before),
  // "mute all notifications except Slack", "play nothing except Spotify"
  ({ phrase: { kind }, before }) => kind === 'except' && (ALL.test(before) || NOTHING.test(before)),
  // "Außer Slack soll auch Teams die Nachricht bekommen"
  ({ phrase: { also }, after }) => also?.test(after) === true,
  // "why do people use Slack instead of Discord", "Das Meeting findet online statt Zoom Link bitte erstellen"
  ({ phrase: { kind }, before }) => kind === 'instead' && (QUESTION.test(before) || TAKES_PLACE.test(before)),
  // "create an issue with the title "Use Postgres instead of MySQL"", "add todo: never use Stripe"
  ({ before }) => /["“„«]/u.test(before.replaceAll(QUOTED, '')),
  ({ before }) => CONTENT.test(before),
  // "No Asana, o que existe?" is Portuguese.
  ({ phrase: { kind }, before, after }) => kind === 'no' && before.trim() === '' && PORTUGUESE.test(after),
];

/**
 * Returns a function that tells whether a server is excluded: by its name, or by one that is a part of it, as "Google" is of
 * "Google Calendar". A part that is an ordinary word excludes nothing.
 * @param excluded as of `wantedAndExcluded`
 */
export function excludedMatcher(excluded: readonly string[]): (name: NameForms) => boolean {
  const names = excluded.map(spaced);
  return ({ spaced: own, whole }) =>
    names.some(
      words =>
        words === own ||
        (isDistinctive(words) && whole.includes(words)) ||
        (isDistinctive(own) && words.includes(own)),
    );
}
