import { readFileSync } from 'node:fs';

/**
 * Turns requests in other languages into English words, because catalogues are written in English: word by word, without grammar,
 * from `glossary.tsv`. Each of its lines is an English word or phrase and its forms in every language, separated by spaces, with `_`
 * for a space within a form; names are capitalized. The line without an English word has words to leave out, such as articles.
 */
const FILE = new URL('glossary.tsv', import.meta.url);

/** A form with many English words says little. */
const MAX_GLOSSES = 3;
/** The maximum number of words of a form. */
const MAX_PHRASE = 4;

type Language = ReturnType<typeof languageOf>;

/** Languages whose scripts have no other language here. Order matters: Japanese also has Han characters. */
const BY_SCRIPT: readonly (readonly [RegExp, readonly string[]])[] = [
  [/[\p{Script=Hiragana}\p{Script=Katakana}]/u, ['ja']],
  [/\p{Script=Hangul}/u, ['ko']],
  [/\p{Script=Han}/u, ['zh']],
  [/\p{Script=Arabic}/u, ['ar']],
  [/\p{Script=Devanagari}/u, ['hi']],
  [/\p{Script=Cyrillic}/u, ['ru', 'uk']],
];
const LATIN = ['de', 'es', 'fr', 'id', 'it', 'nl', 'pl', 'pt', 'sv', 'tr', 'vi'];
/** Languages that write compounds as one word. */
const COMPOUNDING = new Set(['de', 'nl', 'sv']);

/** Languages that capitalize more than names. */
const CAPITALIZING = new Set(['de']);
const NONE: ReadonlySet<string> = new Set();
/** A capitalized word within a sentence. */
const NAME = /(?<=[\p{Ll}\p{N},;:]\s+)\p{Lu}[\p{L}\p{M}]+/gu;

/** Languages in which words differ by their accents alone. */
const ACCENTED = new Set(['vi']);

const UNSPACED_SCRIPTS = String.raw`\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}ー`;
const UNSPACED = new RegExp(`^[${UNSPACED_SCRIPTS}]`, 'u');
/** Words, and runs of scripts without spaces. */
const WORD = new RegExp(
  String.raw`[${UNSPACED_SCRIPTS}]+|(?:(?![${UNSPACED_SCRIPTS}])[\p{L}\p{N}\p{M}])+`,
  'gu',
);

/** The two texts by which one in another language is searched. */
interface Translation {
  /** Its English words, with those that the glossary does not know as they are, e.g. names. */
  readonly english: string;
  /** The text, without the words to leave out in scripts without spaces. */
  readonly own: string;
  readonly language: QueryLanguage;
}

/** The language of a text. */
export interface QueryLanguage {
  /** Its code in ISO 639-1. */
  readonly code: string;
  /** Returns whether a lower-case word is one of it that the glossary knows. */
  readonly hasWord: (word: string) => boolean;
}

export class Glossary {
  readonly #languages: ReadonlyMap<string, Language>;
  /** Words of names, which are a sign of no language: many are spelled alike in several. */
  readonly #inNames: ReadonlySet<string>;
  /** The English words of letters alone, names among them, in lower case. */
  readonly words: readonly string[];
  /** The English words and phrases that are no names. */
  readonly common: ReadonlySet<string>;
  /** Returns whether a lower-case word is common in English, and not only a name. */
  readonly isEnglish: (word: string) => boolean;

  /**
   * @param table the content of a file like `glossary.tsv`
   * @param isEnglish whether a lower-case word is common in English, given the English words of the table
   */
  constructor(table: string, isEnglish: (known: readonly string[]) => (word: string) => boolean) {
    const [head = '', ...lines] = table.trimEnd().split('\n');
    const rows = lines.map(line => line.split('\t'));
    const names = head.split('\t').slice(1);
    const english = rows.map(([word = '']) => (word === '' ? [] : [word]));
    this.#languages = new Map(
      names.map((name, at) => {
        // Folded as one text: each cell on its own takes several times as long.
        const column = foldFor(name)(rows.map(row => row[at + 1] ?? '').join('\n')).split('\n');
        return [name, languageOf(column.map((forms, line): Row => [english[line] ?? [], forms]))];
      }),
    );
    const all = english.flat();
    this.words = all.map(word => word.toLowerCase()).filter(word => /^[a-z]+$/.test(word));
    this.common = new Set(all.filter(isCommon));
    this.isEnglish = isEnglish([...this.common]);
    const inNames = all.filter(word => !isCommon(word)).flatMap(name => wordsOf(unified(name)));
    this.#inNames = new Set(inNames.filter(word => !this.isEnglish(word)));
  }

  static read(isEnglish: (known: readonly string[]) => (word: string) => boolean): Glossary {
    return new Glossary(readFileSync(FILE, 'utf8'), isEnglish);
  }

  /** Translates a text word by word. Returns undefined for one in English or in no language that it knows. */
  translate(text: string): Translation | undefined {
    const name = this.#detect(text);
    const language = name === undefined ? undefined : this.#languages.get(name);
    if (name === undefined || language === undefined) return undefined;
    const fold = foldFor(name);
    const names = CAPITALIZING.has(name)
      ? NONE
      : new Set(Array.from(text.matchAll(NAME), ([word]) => fold(word)));
    const english = glosses(wordsOf(fold(text)), language, { compounds: COMPOUNDING.has(name), names });
    if (english.length === 0) return undefined;
    return {
      english: [...new Set(english)].join(' '),
      own: withoutFillers(text, language),
      language: { code: name, hasWord: word => language.forms.has(fold(word)) },
    };
  }

  /** Returns whether a text has words in another script only as names: "a flight to 東京 and a hotel". Capitalized ones may be names, too. */
  #isMostlyEnglish(text: string): boolean {
    const words = wordsOf(text.replaceAll(ADDRESS, ' '));
    const english = words.filter(word => /^[a-z]/.test(word) && this.isEnglish(word));
    return english.length > foreignWords(words) * ENGLISH_SHARE;
  }

  #detect(text: string): string | undefined {
    const candidates = this.#isMostlyEnglish(text)
      ? undefined
      : BY_SCRIPT.find(([script]) => script.test(text))?.[1];
    if (candidates?.length === 1) return candidates[0];
    let best: string | undefined;
    const signsOf = (folded: string) => wordsOf(folded).filter(word => !this.#inNames.has(word));
    const plain = signsOf(withoutAccents(text));
    // Words that English has, too, are no sign of another language.
    let most = candidates ? -1 : plain.filter(this.isEnglish).length;
    for (const name of candidates ?? LATIN) {
      const language = this.#languages.get(name);
      const words = ACCENTED.has(name) ? signsOf(unified(text)) : plain;
      const known = language ? knownWords(words, language) : 0;
      if (known > most) [best, most] = [name, known];
    }
    return best;
  }
}

/** In scripts without spaces, about so many characters are a word. */
const CHARACTERS_OF_A_WORD = 2;
/** So many English words for each word in another script make a request English. */
const ENGLISH_SHARE = 3;
const ADDRESS = /\S+:\/\/\S+/g;

/** Counts the words in other scripts than the Latin one. */
const foreignWords = (words: readonly string[]): number =>
  words
    .filter(word => /^(?!\p{Script=Latin})\p{L}/u.test(word))
    .map(word => (UNSPACED.test(word) ? word.length / CHARACTERS_OF_A_WORD : 1))
    .reduce((sum, one) => sum + one, 0);

/** Returns whether an English word of the table is no name. */
const isCommon = (word: string): boolean => word === word.toLowerCase();

type Row = readonly [english: readonly string[], forms: string];

/** Indexes the forms of one language by spelling and by their first letters. */
function languageOf(rows: readonly Row[]) {
  const forms = new Map<string, readonly string[]>();
  let longest = 0;
  for (const [english, spellings] of rows) {
    for (const form of spellings.split(' ')) {
      if (form === '') continue;
      const known = forms.get(form);
      if (known) {
        // A word to leave out stays so.
        if (known.length > 0 && known.length < MAX_GLOSSES) forms.set(form, [...known, ...english]);
        continue;
      }
      forms.set(form, english);
      longest = Math.max(longest, form.length);
    }
  }
  const alike = Map.groupBy(forms.keys(), startOf);
  const starts = [...alike.keys()].filter(start => start.length === START).sort();
  const isLeftOut = (form: string) => forms.get(form)?.length === 0;
  /** Forms with the same start follow one another: lists by start took 6 MB more for all languages. */
  const byStart = starts.flatMap(start => (alike.get(start) ?? []).filter(form => !isLeftOut(form)));
  return { forms, byStart, longest };
}

const startOf = (word: string): string => word.slice(0, START);

/** Yields the forms with the same start as a word; none for a shorter one. */
function* sharingStart(word: string, { byStart }: Language): Generator<string> {
  const start = startOf(word);
  if (start.length < START) return;
  let low = 0;
  let high = byStart.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (startOf(byStart[middle] ?? '') < start) low = middle + 1;
    else high = middle;
  }
  for (let at = low; at < byStart.length; at++) {
    const form = byStart[at] ?? '';
    if (!form.startsWith(start)) return;
    yield form;
  }
}

const wordsOf = (text: string): string[] => Array.from(text.matchAll(WORD), ([word]) => word);

/** Lower case; an apostrophe separates words (l'hôtel), and letters that are typed in several ways are one. */
const unified = (text: string): string =>
  text
    .toLowerCase()
    .normalize('NFC')
    .replaceAll(/['’`]/g, ' ')
    .replaceAll(/[أإآ]/g, 'ا')
    .replaceAll('ة', 'ه')
    .replaceAll('ى', 'ي')
    .replaceAll('ß', 'ss');

const withoutAccents = (text: string): string =>
  unified(text)
    .normalize('NFKD')
    .replaceAll(/[\u0300-\u036f\u064b-\u0652\u0640]/g, '')
    .normalize('NFC')
    .replaceAll('ı', 'i');

const foldFor = (language: string): ((text: string) => string) =>
  ACCENTED.has(language) ? unified : withoutAccents;

interface WordRules {
  /** true: a word may be two forms in one. */
  readonly compounds: boolean;
  /** Words that are not taken for inflected forms. */
  readonly names: ReadonlySet<string>;
}

function glosses(words: readonly string[], language: Language, rules: WordRules): string[] {
  const english: string[] = [];
  for (let at = 0; at < words.length;) {
    const length = phraseAt(words, at, language);
    const word = words.slice(at, at + length).join('_');
    english.push(...(UNSPACED.test(word) ? ofRun(word, language) : ofWord(word, language, rules)));
    at += length;
  }
  return english;
}

/** Counts the words that are forms or parts of forms. */
function knownWords(words: readonly string[], language: Language): number {
  let known = 0;
  for (let at = 0; at < words.length;) {
    const length = phraseAt(words, at, language);
    if (length > 1 || language.forms.has(words[at] ?? '')) known += length;
    at += length;
  }
  return known;
}

/** Returns the number of words of the longest known form that starts at a word, at least 1. */
function phraseAt(words: readonly string[], at: number, { forms }: Language): number {
  for (let length = Math.min(MAX_PHRASE, words.length - at); length > 1; length--)
    if (forms.has(words.slice(at, at + length).join('_'))) return length;
  return 1;
}

/** Glosses a run of a script without spaces, or with endings on its words, by the longest known form at each place. */
const ofRun = (run: string, language: Language): string[] =>
  formsIn(run, language).flatMap(form => language.forms.get(form) ?? []);

/** Splits such a run into known forms and single characters. */
function formsIn(run: string, { forms, longest }: Language): string[] {
  const found: string[] = [];
  for (let at = 0; at < run.length;) {
    let end = Math.min(run.length, at + longest);
    while (end > at + 1 && !forms.has(run.slice(at, end))) end--;
    found.push(run.slice(at, end));
    at = end;
  }
  return found;
}

/**
 * Leaves out words of scripts without spaces: every pair of their characters would count as a rare term. Elsewhere they are so common
 * that they count for little.
 */
const withoutFillers = (text: string, language: Language): string =>
  text.replaceAll(WORD, word => (UNSPACED.test(word) ? withoutLeftOut(word, language) : word));

const withoutLeftOut = (run: string, language: Language): string =>
  formsIn(run, language)
    .map(form => (language.forms.get(form)?.every(word => ASKING.has(word)) ? ' ' : form))
    .join('');

/** English words that only ask for something. */
const ASKING = new Set([
  'check',
  'find',
  'give',
  'know',
  'look',
  'lookup',
  'query',
  'search',
  'see',
  'show',
  'tell',
]);

function ofWord(word: string, language: Language, { compounds, names }: WordRules): readonly string[] {
  const known =
    language.forms.get(word) ??
    language.forms.get(withoutArabicPrefix(word)) ??
    (compounds ? ofCompound(word, language) : undefined) ??
    (names.has(word) ? undefined : ofInflected(word, language));
  return known ?? [word];
}

/** Arabic writes "and", "with", "to" and "the" as one word with what follows. */
const withoutArabicPrefix = (word: string): string =>
  word.replace(/^[وف]?[بلك]?(?:ال|(?<=ل)ل)?(?=.{3})/u, '');

/** The minimum number of letters of a part of a compound, and of the letters that inflected words share. */
const START = 4;
const JOINTS = ['', 's', 'es', 'n', 'en', 'e'];

/** "wetterbericht" -> weather report */
function ofCompound(word: string, { forms }: Language): string[] | undefined {
  for (let at = word.length - START; at >= START; at--) {
    const last = forms.get(word.slice(at));
    if (!last) continue;
    for (const joint of JOINTS) {
      const first = word.slice(0, at).endsWith(joint) && forms.get(word.slice(0, at - joint.length));
      if (first) return [...first, ...last];
    }
  }
  return undefined;
}

/** The maximum number of letters in which the endings of two forms differ. */
const MAX_ENDING = 3;

/** Finds the form that shares the longest start with a word and differs in its ending only. */
function ofInflected(word: string, language: Language): readonly string[] | undefined {
  let best: string | undefined;
  let longest = Math.max(START, Math.ceil(word.length * 0.6)) - 1;
  for (const form of sharingStart(word, language)) {
    const shared = sharedStart(word, form);
    if (shared > longest && Math.max(word.length, form.length) - shared <= MAX_ENDING)
      [best, longest] = [form, shared];
  }
  return best === undefined ? undefined : language.forms.get(best);
}

function sharedStart(a: string, b: string): number {
  let at = 0;
  while (at < a.length && a[at] === b[at]) at++;
  return at;
}
