import { stemmer } from 'stemmer';
import type { Pause } from '../../platform/time.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Passage } from './embed/embedder.ts';
import { Glossary, type QueryLanguage } from './glossary.ts';

/** The fields of a server that search reads. */
export interface Described extends Pick<Server, 'name' | 'description' | 'tools'> {
  readonly examples?: readonly string[] | undefined;
}

/** One document, in a form for each kind of search. */
interface SearchDocument {
  /** For `tokenize`, which splits identifiers itself. */
  readonly keywords: string;
  /** Prose for the embedder. */
  readonly prose: string;
}

interface ServerDocuments {
  /** Keywords of the server with all its tools: a query often touches several of them. */
  readonly whole: string;
  /** The server's own text first, then one document per tool, in the order of `server.tools`, then one per example. */
  readonly parts: readonly SearchDocument[];
}

/** About the 256 tokens at which the embedder truncates. */
const MAX_PROSE_LENGTH = 1_000;
/** Limits the work, far above usual lengths. */
const MAX_KEYWORDS_LENGTH = 4_000;
const MAX_WHOLE_LENGTH = 50_000;
/** Limits the argument names and descriptions of a tool, so that a long schema does not outweigh the tool's own description. */
const MAX_ARGUMENTS_LENGTH = 500;

/** Returns the texts that search uses. Only this code decides which parts of a catalogue entry can be found. */
export function documentsOf(server: Described): ServerDocuments {
  const ownText = `${server.name}. ${server.description}`;
  const tools = server.tools.map(tool => ({
    keywords: `${tool.name} ${tool.description} ${argumentsOf(tool.input_schema)}`.slice(
      0,
      MAX_KEYWORDS_LENGTH,
    ),
    // The server's name says what a tool like "list items" is about.
    prose: `${server.name}: ${splitIdentifier(tool.name)}. ${tool.description}`.slice(0, MAX_PROSE_LENGTH),
  }));
  const examples = (server.examples ?? []).map(example => ({ keywords: example, prose: example }));
  return {
    whole: [ownText, ...[...tools, ...examples].map(({ keywords }) => keywords)]
      .join(' ')
      .slice(0, MAX_WHOLE_LENGTH),
    parts: [
      { keywords: ownText.slice(0, MAX_KEYWORDS_LENGTH), prose: ownText.slice(0, MAX_PROSE_LENGTH) },
      ...tools,
      ...examples,
    ],
  };
}

/** Returns the number of parts of `documentsOf`. */
export const textCount = ({ tools, examples = [] }: Pick<Described, 'tools' | 'examples'>): number =>
  1 + tools.length + examples.length;

/**
 * Returns the names and descriptions of a tool's arguments, top level only, short names first: the database does not keep their order, and
 * every process must have the same text.
 */
function argumentsOf(schema: Readonly<Record<string, unknown>>): string {
  const { properties } = schema;
  if (!isObject(properties)) return '';
  const inOrder = Object.entries(properties).sort(
    ([one], [other]) => one.length - other.length || (one < other ? -1 : 1),
  );
  const parts = inOrder.map(([name, property]) => {
    const description = isObject(property) ? property['description'] : undefined;
    return typeof description === 'string' ? `${name} ${description}` : name;
  });
  return parts.join(' ').slice(0, MAX_ARGUMENTS_LENGTH);
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;

/** The terms of a server's keywords. */
export interface ServerTerms {
  readonly whole: readonly string[];
  /** In the order of the parts. */
  readonly parts: readonly (readonly string[])[];
}

export function termsOfDocuments(documents: ServerDocuments): ServerTerms {
  return withWhole(
    documents,
    documents.parts.map(({ keywords }) => tokenize(keywords)),
  );
}

/** Yields to other work meanwhile: a server may have a thousand tools. */
export async function termsInSlices(documents: ServerDocuments, pause: Pause): Promise<ServerTerms> {
  const parts: string[][] = [];
  for (const { keywords } of documents.parts) {
    parts.push(tokenize(keywords));
    await pause();
  }
  return withWhole(documents, parts);
}

/** Unless something was cut off, `whole` consists of the texts of the parts: they are not read twice. */
function withWhole({ whole, parts }: ServerDocuments, terms: readonly (readonly string[])[]): ServerTerms {
  const joined = parts.reduce((length, { keywords }) => length + keywords.length + 1, -1);
  const isJoined = whole.length === joined && joined < MAX_WHOLE_LENGTH;
  return { whole: isJoined ? terms.flat() : tokenize(whole), parts: terms };
}

/** Longer runs are encoded data, not words. */
const MAX_TERM_LENGTH = 64;

/** Shorter sentences are greetings and fragments such as "e.g.". In UTF-16 units, without the final mark. */
const MIN_SENTENCE_LENGTH = 11;
/** Limits the work. */
const MAX_SENTENCES = 8;

/** Words of letters, digits and marks, joined by `_` or `-` as written. */
const COMPOUND = /[\p{L}\p{N}\p{M}]+(?:[_-][\p{L}\p{N}\p{M}]+)*/gu;

/** Scripts without spaces between words. */
const UNSPACED = String.raw`\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}`;
const UNSPACED_RUN = new RegExp(`[${UNSPACED}]+|[^${UNSPACED}]+`, 'gu');
const IS_UNSPACED = new RegExp(`^[${UNSPACED}]`, 'u');

/** Most words, which need no splitting. */
const SINGLE = /^[A-Za-z0-9][a-z0-9]*$/;

/** Splits aB into a B and HTTPServer into HTTP Server; digits stay attached (s3, oauth2). */
const CAMEL_HUMP = /(?<=[\p{Ll}\p{N}])(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})/u;

/** English words without meaning of their own, without what follows their apostrophe. */
const STOP_WORDS = new Set(
  `a about after all also am an and any are as at be been before being both but by can could did didn do does doesn doing
  don down each few for from further had has have having he hello her here hers hi him his how i if im in into is isn it
  its itself just let like me more most my myself need no nor not of off on once only or other our ours out over own
  please same she should so some such than thank thanks that the their theirs them then there these they this those
  through to too under until up us very want was we were what when where which while who whom why will with would you
  your yours`.split(/\s+/),
);

/**
 * Returns the terms of a text for keyword search, in order and with repetitions: lower case, accents stripped, English stop words
 * dropped, Porter stems. A joined word (camelCase, snake_case, kebab-case) gives its parts and the whole without joints; runs of a
 * script without spaces give overlapping pairs of characters.
 */
export function tokenize(text: string): string[] {
  const terms: string[] = [];
  for (const compound of fold(text).match(COMPOUND) ?? []) {
    if (SINGLE.test(compound)) {
      pushWord(compound, terms);
      continue;
    }
    for (const [run] of compound.matchAll(UNSPACED_RUN)) {
      if (IS_UNSPACED.test(run)) pushBigrams(run, terms);
      else pushWords(run, terms);
    }
  }
  return terms;
}

/**
 * Returns the sentences of a query, to be embedded one by one: each often asks for something different and is clearer on its own.
 * Fragments are dropped; any remaining text is one sentence. Final marks and repeated spaces are removed, because they would change
 * the model's vector but not the meaning.
 */
export function sentencesOf(text: string): string[] {
  const sentences = text
    .split(/(?<=[.!?])\s+|(?<=[。！？])|\n+/u)
    .map(withoutEnd)
    .filter(sentence => sentence.length >= MIN_SENTENCE_LENGTH);
  if (sentences.length < 2) return [withoutEnd(text) || text];
  const rest = sentences.splice(MAX_SENTENCES - 1).join('. ');
  return rest === '' ? sentences : [...sentences, rest];
}

/** A shorter clause is a detail of another one. In words. */
const MIN_CLAUSE_LENGTH = 3;
/** More of them are a list of details. */
const MAX_CLAUSES = 3;

/** A comma alone usually begins a detail. */
const CLAUSE_END = /[;.!?]+(?:\s|$)|,?\s*(?<![\p{L}\p{N}_-])(?:and|then|also)(?![\p{L}\p{N}_-])/iu;

/** Returns the clauses of an English request that asks for two or three things; none for other requests. */
function clausesOf(query: string): string[] {
  const clauses = query
    .split(CLAUSE_END)
    .map(clause => clause.trim())
    .filter(clause => clause.split(/\s+/).length >= MIN_CLAUSE_LENGTH);
  return clauses.length >= 2 && clauses.length <= MAX_CLAUSES ? clauses : [];
}

const withoutEnd = (sentence: string): string => {
  const words = sentence.trim().replaceAll(/\s+/g, ' ');
  let end = words.length;
  while (end > 0 && ENDS.has(words[end - 1] ?? '')) end--;
  return words.slice(0, end);
};

const ENDS = new Set('.!?…。！？ ');

/** Returns `getUser_byID` as "get User by ID", which suits an embedding model trained on prose. */
export const splitIdentifier = (name: string): string =>
  name
    .split(/[^\p{L}\p{N}\p{M}]+/u)
    .flatMap(part => part.split(CAMEL_HUMP))
    .filter(part => part !== '')
    .join(' ');

/**
 * Unifies compatibility forms, drops accents of alphabets (the marks of other scripts are letters), and turns "user's" into "user".
 */
function fold(text: string): string {
  const plain = /[^\0-\x7f]/.test(text)
    ? text
        .normalize('NFKD')
        .replace(/[\u0300-\u036f]+/g, '')
        .normalize('NFKC')
    : text;
  return /['’]/.test(plain)
    ? plain.replace(/(?<=\p{L})['’](?:(?:s|d|ll|m|re|t|ve)(?![\p{L}\p{N}])|(?=\p{L}))/giu, '')
    : plain;
}

function pushWords(compound: string, terms: string[]): void {
  const parts = compound.split(/[_-]/).flatMap(part => part.split(CAMEL_HUMP));
  for (const part of parts) pushWord(part, terms);
  if (parts.length > 1) pushWord(parts.join(''), terms);
}

function pushWord(word: string, terms: string[]): void {
  const lower = word.toLowerCase();
  if (lower === '' || lower.length > MAX_TERM_LENGTH || STOP_WORDS.has(lower)) return;
  terms.push(stemOf(lower));
}

/** Caches stems by word, because an import has millions of terms and many repeat. */
const stems = new Map<string, string>();
const MAX_STEMS = 50_000;

function stemOf(word: string): string {
  let stem = stems.get(word);
  if (stem === undefined) {
    stem = stemmer(word);
    if (stems.size === MAX_STEMS) stems.clear();
    stems.set(word, stem);
  }
  return stem;
}

function pushBigrams(run: string, terms: string[]): void {
  const characters = Array.from(run);
  if (characters.length === 1) terms.push(run);
  for (let at = 1; at < characters.length; at++) terms.push(`${characters[at - 1]}${characters[at]}`);
}

/** A query in the forms that search compares with documents. */
interface QueryTexts {
  /** Different terms for keyword search. */
  readonly terms: readonly string[];
  /** Sentences to be embedded one by one. */
  readonly sentences: readonly string[];
  /** The clauses of a query that asks for two or three things; none for other queries. */
  readonly clauses: readonly ClauseTexts[];
  /** The language of the query, whose words the texts have in English, too; undefined for English. */
  readonly language: QueryLanguage | undefined;
}

interface ClauseTexts {
  readonly terms: readonly string[];
  /** The clause in its sentence. */
  readonly passage: Passage;
}

const glossary = Glossary.read(known => {
  const terms = new Set(known.flatMap(tokenize));
  // A stop word has no term.
  return word => tokenize(word).every(term => terms.has(term));
});

/** Words of requests in lower case, names among them. */
export const requestWords: readonly string[] = glossary.words;

/** Returns whether a lower-case text has only words of the glossary, in any form, and no names. */
export const isOrdinaryText = (text: string): boolean => glossary.isEnglish(text);

/** Returns whether a lower-case word is a stop word, or one of the glossary or the plural of one, and no name. */
export const isOrdinaryWord = (word: string): boolean =>
  STOP_WORDS.has(word) ||
  [word, word.replace(/s$/, ''), word.replace(/es$/, '')].some(form => glossary.common.has(form));

/**
 * Returns the texts that search compares with `documentsOf` servers. A query in another language counts with its English words, too,
 * and an English one with misspelled words as it is and corrected.
 * @param correct returns an English query without its spelling mistakes, if it has any
 */
export function textsOf(query: string, correct?: (query: string) => string | undefined): QueryTexts {
  const translation = glossary.translate(query);
  if (translation) {
    const { english, own, language } = translation;
    return { terms: termsOf(`${english} ${own}`), sentences: [english], clauses: [], language };
  }
  const corrected = correct?.(query) ?? query;
  const sentences = sentencesOf(corrected);
  const clauses = clausesOf(corrected).map(clause => ({
    terms: termsOf(clause),
    passage: passageOf(clause, sentences),
  }));
  return {
    terms: termsOf(corrected === query ? query : `${query} ${corrected}`),
    sentences: corrected === query ? sentences : [...new Set([...sentencesOf(query), ...sentences])],
    clauses,
    language: undefined,
  };
}

const termsOf = (text: string): string[] => [...new Set(tokenize(text))];

function passageOf(clause: string, sentences: readonly string[]): Passage {
  const of = sentences.find(sentence => sentence.includes(clause));
  if (of === undefined || of === clause) return clause;
  const from = of.indexOf(clause);
  return { of, from, to: from + clause.length };
}
