import type { Catalogue } from '../catalogue/catalogue.ts';
import type { ServerHead } from '../catalogue/entry.ts';
import type { QueryLanguage } from './glossary.ts';
import { isOrdinaryText, isOrdinaryWord, tokenize } from './documents.ts';

/** Matches a character of a script whose words may follow one another without a space. */
const UNSPACED = String.raw`[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}\u30FC]`;

const IN_EMAIL = String.raw`[[\p{L}\p{N}\p{M}_.+\-]--${UNSPACED}]`;
const EMAIL = new RegExp(`(?<!${IN_EMAIL})${IN_EMAIL}+@${IN_EMAIL}+`, 'gv');

/** Removes e-mail addresses: they name people and not the services that carry their mail. */
export const withoutAddresses = (query: string): string => query.replace(EMAIL, ' ');

/** Removes a trailing parenthesis from a server's name: "DefiLlama (unofficial)" becomes "DefiLlama". */
const withoutBrackets = (name: string): string => name.replace(/\s*\([^()]*\)\s*$/, '');

/** A server's name in the forms that are compared with queries. */
export interface NameForms {
  /** Without a trailing parenthesis. */
  readonly short: string;
  readonly lower: string;
  /** The words in lower case, each between spaces. */
  readonly spaced: string;
  /** The words of the whole name, with its parenthesis, likewise. */
  readonly whole: string;
  /** The terms of each spelling: as written, in lower case, and both without a trailing parenthesis. */
  readonly spellings: readonly ReadonlySet<string>[];
}

export function formsOf(serverName: string): NameForms {
  const short = withoutBrackets(serverName);
  const lower = short.toLowerCase();
  const spellings = [...new Set([serverName, serverName.toLowerCase(), short, lower])]
    .map(spelling => new Set(tokenize(spelling)))
    .filter(({ size }) => size > 0);
  return { short, lower, spaced: spaced(short), whole: spaced(serverName), spellings };
}

/** Returns a function that tells whether the query is a server's name, in any spelling, without other words. */
export function calledMatcher(query: string): (name: NameForms) => boolean {
  const asked = [query, query.toLowerCase()].map(text => new Set(tokenize(text)));
  return ({ spellings }) =>
    spellings.some(name =>
      asked.some(words => words.size === name.size && [...name].every(term => words.has(term))),
    );
}

/** Matches a letter or digit of another script. */
const IN_WORD = new RegExp(String.raw`[[\p{L}\p{N}]--${UNSPACED}]`, 'v');
const SENTENCE_ENDS = new Set('.!?…。！？\n');
/** Characters that may appear between the end of a sentence and the first word of the next. */
const OPENS = new Set(' \t\r\u00A0\u3000"\'“„«‘([-–*•');
/** Matches a sentence that continues with a colon or in another script. */
const GOES_ON_OTHERWISE = /^\s*[:：]|^[^\p{L}]*(?!\p{Script=Latin})\p{L}/u;

/**
 * Returns a function that tells whether the query, of any length and language, mentions a server's capitalized name. A word
 * at the start of a sentence does not count, because it is always capitalized, unless the sentence continues in another
 * script. A query with mostly capitalized words mentions nothing. Takes time linear in the query.
 */
export function mentionMatcher(query: string): (serverName: string) => boolean {
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

/**
 * Returns a function that tells whether the query has a server's name among its words, in any case: "jira backlog". A name
 * that is an ordinary word, such as Linear or Box, must be mentioned as a name (`mentionMatcher`). One that is an address, such as
 * monday.com, may be written as one.
 */
export function namedMatcher(query: string): (name: NameForms) => boolean {
  const isMentioned = mentionMatcher(query);
  const asked = spaced(query);
  const addresses = new Set(query.toLowerCase().match(ADDRESS));
  const has = (name: string) =>
    asked.includes(name) || (!isOneWord(name) && asked.includes(singularOf(name)));
  return ({ short, lower, spaced: name }) =>
    isMentioned(short) || addresses.has(lower) || (has(name) && isDistinctive(name));
}

/** "google sheets" -> "google sheet" @param words like `spaced` */
const singularOf = (words: string): string => words.replace(/s $/, ' ');

/** Words that tell, before a name, where something is to be done or found. */
const PLACING: Readonly<Record<string, string>> = {
  de: 'auf im in ins',
  es: 'en',
  fr: 'dans en sur',
  id: 'di ke',
  it: 'in nel nell su sul',
  nl: 'in naar op',
  pl: 'do na w we',
  pt: 'em na nas no nos',
  ru: 'в во на',
  sv: 'i på till',
  uk: 'в до на у',
  vi: 'trên vào',
};

/**
 * Returns a function that tells whether the query has a server's name behind a word of place: "apunta en notion". The name must be no
 * word of its language.
 * @param language of the query; undefined for English, in which such words say no more than the name
 */
export function placedMatcher(
  query: string,
  language: QueryLanguage | undefined,
): (name: NameForms) => boolean {
  const placing = new Set(PLACING[language?.code ?? '']?.split(' '));
  const asked = spaced(query);
  return ({ spaced: name }) => {
    const [before = '', after] = asked.split(name, 2);
    const isPlaced = after !== undefined && placing.has(before.slice(before.lastIndexOf(' ') + 1));
    return isPlaced && !language?.hasWord(name.trim());
  };
}

/** Matches an address without scheme and path, in lower case. */
const ADDRESS = /(?<![a-z\d.-])[a-z\d-]+(?:\.[a-z\d-]+)+/g;

/** Words that name well-known services and that the glossary lacks. */
const ORDINARY_NAMES = new Set(
  `allegro amplitude backlog buffer canny clerk clio clover courier definite digits doodle eraser factorial fellow ghost gondola
   grain greenhouse harvest indeed kit lever line medium meetup mercury miele needle neon peek polar railway replicate sage sanity
   sap socket teamwork threads trunk wave wise workable workday`.split(/\s+/),
);

const isOrdinary = (word: string): boolean => ORDINARY_NAMES.has(word) || isOrdinaryWord(word);

/** @param words like `spaced` */
const isOneWord = (words: string): boolean => !words.trim().includes(' ');

/**
 * Returns whether words tell of a name by themselves: if they have two characters, and are no ordinary text.
 * @param words like `spaced`
 */
export const isDistinctive = (words: string): boolean =>
  words.length > MIN_NAME && !(isOneWord(words) ? isOrdinary : isOrdinaryText)(words.trim());

/** Two characters and the spaces around them. */
const MIN_NAME = 4;

/** Matches a word, or what stands without spaces between characters of other scripts. */
const WORD = new RegExp(String.raw`[[\p{L}\p{N}\p{M}]--${UNSPACED}]+|${UNSPACED}+`, 'gv');

const wordsOf = (text: string): readonly string[] => text.normalize('NFC').toLowerCase().match(WORD) ?? [];

/** Returns the words of a text in lower case, each between spaces. */
export const spaced = (text: string): string => ` ${wordsOf(text).join(' ')} `;

function beginsSentence(query: string, at: number): boolean {
  let before = at - 1;
  while (before >= 0 && OPENS.has(query.charAt(before))) before--;
  return before < 0 || SENTENCE_ENDS.has(query.charAt(before));
}

/**
 * Finds servers whose id or name is the whole query. It searches the whole catalogue, because the index does not list a
 * server only for common words in its name, and does not know ids.
 */
export class ExactNames {
  readonly #catalogue: Pick<Catalogue, 'active' | 'get'>;
  #byName = new Map<string, string[]>();
  /** The distinctive words of all names; undefined until somebody asks for one. */
  #words: Set<string> | undefined;
  #epoch = -1;

  constructor(catalogue: Pick<Catalogue, 'active' | 'get'>) {
    this.#catalogue = catalogue;
  }

  /**
   * Returns the ids of the servers whose id or name is the query, ignoring case and a trailing parenthesis.
   * @param epoch of the search index: if it changes, the names are read again
   */
  idsFor(query: string, epoch: number): string[] {
    this.#update(epoch);
    const called = query.toLowerCase();
    const id = this.#catalogue.get(called)?.active ? [called] : [];
    return [...new Set([...id, ...(this.#byName.get(called) ?? [])])];
  }

  /**
   * Tells whether words are the name of a server, or one of the words of a name and not an ordinary one.
   * @param words in lower case, with one space between them
   * @param epoch as of `idsFor`
   */
  knownAs(words: string, epoch: number): 'name' | 'part' | undefined {
    this.#update(epoch);
    if (this.#byName.has(words)) return 'name';
    this.#words ??= new Set([...this.#byName.keys()].flatMap(wordsOf).filter(isWordOfName));
    return this.#words.has(words) ? 'part' : undefined;
  }

  /**
   * Returns the ranking with four groups moved to the front: the server whose id is the query, then servers with exactly that name, then
   * servers named in another spelling. Ids are unique, but anyone can choose any name: a registry's servers come after others.
   * @param mayLead other servers lead only by their id
   */
  pinExact<Server extends Scored>(
    ranking: readonly Server[],
    query: string,
    isNamed: (serverId: string) => boolean,
    mayLead: (serverId: string) => boolean,
  ): readonly Server[] {
    const called = query.toLowerCase();
    const isCalled = (serverId: string) => this.#catalogue.get(serverId)?.name.toLowerCase() === called;
    const leading = (isChosen: (serverId: string) => boolean) => (serverId: string) =>
      isChosen(serverId) && mayLead(serverId);
    const groups = [
      leading(isNamed),
      leading(isCalled),
      leading(id => isCalled(id) && !isFromRegistry(this.#catalogue.get(id))),
      (serverId: string) => serverId === called,
    ];
    return groups.reduce((ranked, isChosen) => pinFirst(ranked, isChosen), ranking);
  }

  #update(epoch: number): void {
    if (epoch !== this.#epoch) this.#read();
    this.#epoch = epoch;
  }

  #read(): void {
    this.#byName = new Map();
    this.#words = undefined;
    for (const { id, name } of this.#catalogue.active()) {
      for (const called of new Set([name.toLowerCase(), withoutBrackets(name).toLowerCase()])) {
        const ids = this.#byName.get(called);
        if (ids) ids.push(id);
        else this.#byName.set(called, [id]);
      }
    }
  }
}

/** Returns whether a word in lower case tells of a name that it is a part of. */
const isWordOfName = (word: string): boolean => /\p{L}{3}/u.test(word) && !isOrdinary(word);

/** Returns whether a server's name is what a registry says, which nobody here has checked. */
export const isFromRegistry = (server: Pick<ServerHead, 'origin'> | undefined): boolean =>
  server?.origin === 'registry';

/** Matches the name of a server that tells about a product, but does nothing with it. */
const ONLY_DESCRIBES = /\b(docs|documentation)\b/i;

interface Integration {
  /** In all spellings of the entries. */
  readonly names: Set<string>;
  readonly serverIds: Set<string>;
}

interface Servers {
  /** Asked for only if the query names a product. */
  readonly others: () => readonly Pick<ServerHead, 'id' | 'name'>[];
  readonly works: (serverId: string) => boolean;
}

/** Servers that work with a product which a query names. */
interface Integrated {
  readonly serverIds: ReadonlySet<string>;
  /** True if the name is the whole query. */
  readonly isAlone: boolean;
}

/** Bounds the work after each change of the catalogue. */
const MOST_NAMES = 50_000;
/** Longer names are ignored. */
const MOST_WORDS = 6;
/** Only two of them lead. */
const MOST_INTEGRATED = 100;

/** Finds servers by the products of others that they work with. */
export class Integrations {
  readonly #catalogue: Pick<Catalogue, 'active'>;
  /** By `spaced` name. */
  #byName = new Map<string, Integration>();
  #epoch = -1;

  constructor(catalogue: Pick<Catalogue, 'active'>) {
    this.#catalogue = catalogue;
  }

  /**
   * Returns the servers that work with a product which the query names, if no other server is named after it. A name of one word that
   * is an ordinary one must be capitalized within a sentence, or be the whole query. Of the catalogue the first 50,000 names count.
   * @param epoch of the search index: if it changes, the entries are read again
   * @param others returns the working servers that may serve the query
   * @param works whether a server works
   */
  find(query: string, epoch: number, { others, works }: Servers): Integrated {
    this.#update(epoch);
    const asked = spaced(query);
    const isMentioned = mentionMatcher(query);
    const isMeant = (words: string, { names }: Integration) =>
      words === asked || !isOneWord(words) || !isOrdinary(words.trim()) || [...names].some(isMentioned);
    const found = [...(this.#byName.size === 0 ? [] : phrasesOf(query))].flatMap(words => {
      const known = this.#byName.get(words);
      const ids = known && isMeant(words, known) ? [...known.serverIds].filter(works) : [];
      return ids.length === 0 ? [] : [{ words, ids }];
    });
    const rivals = found.length === 0 ? [] : others().filter(({ name }) => !ONLY_DESCRIBES.test(name));
    const named = rivals.map(({ id, name }) => ({ id, name: spaced(withoutBrackets(name)) }));
    const left = found.filter(
      ({ words, ids }) => !named.some(({ id, name }) => isAfter(words, name) && !ids.includes(id)),
    );
    return {
      serverIds: new Set(left.flatMap(({ ids }) => ids).slice(0, MOST_INTEGRATED)),
      isAlone: left.some(({ words }) => words === asked),
    };
  }

  /**
   * Returns whether words are the name of a product that a server works with.
   * @param words in lower case, with one space between them
   * @param epoch as of `find`
   */
  knows(words: string, epoch: number): boolean {
    this.#update(epoch);
    return this.#byName.has(spaced(words));
  }

  #update(epoch: number): void {
    if (epoch !== this.#epoch) this.#read();
    this.#epoch = epoch;
  }

  #read(): void {
    this.#byName = new Map();
    let count = 0;
    for (const { id, integrations = [] } of this.#catalogue.active()) {
      for (const name of integrations) {
        if (++count > MOST_NAMES) return;
        const list = wordsOf(name);
        const words = ` ${list.join(' ')} `;
        if (words.length <= MIN_NAME || list.length > MOST_WORDS) continue;
        const known = this.#byName.get(words) ?? { names: new Set(), serverIds: new Set() };
        known.names.add(name);
        known.serverIds.add(id);
        this.#byName.set(words, known);
      }
    }
  }
}

/** Returns whether a name is after a product: it begins with the product's name, or is hardly longer; both like `spaced`. */
const isAfter = (words: string, name: string): boolean =>
  name.startsWith(words) || (name.includes(words) && name.length <= 2 * words.length);

/** Returns all runs of at most `MOST_WORDS` words of a text, each like `spaced`. */
function phrasesOf(text: string): ReadonlySet<string> {
  const words = wordsOf(text);
  const phrases = new Set<string>();
  for (const from of words.keys())
    for (let to = from + 1; to <= Math.min(words.length, from + MOST_WORDS); to++)
      phrases.add(` ${words.slice(from, to).join(' ')} `);
  return phrases;
}

interface Scored {
  readonly serverId: string;
  readonly finalScore: number;
  readonly isPinned?: true;
}

/** Moves some servers before all others and gives them the score of the best one. */
export function pinFirst<Server extends Scored>(
  ranking: readonly Server[],
  isPinned: (serverId: string) => boolean,
): readonly Server[] {
  const best = ranking[0]?.finalScore ?? 0;
  const pinned = ranking.filter(({ serverId }) => isPinned(serverId));
  if (pinned.length === 0) return ranking;
  const others = ranking.filter(({ serverId }) => !isPinned(serverId));
  return [
    ...pinned.map(server => Object.assign({}, server, { finalScore: best, isPinned: true as const })),
    ...others,
  ];
}
