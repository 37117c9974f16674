/**
 * How words exclude a name. `but` contrasts ("but not in"), `not` says no ("never use"), `except` sets apart, `instead` replaces. Two are
 * also said of what is searched for, "a page without images" and "no coding": `without` and `no`.
 */
type ExclusionKind = 'but' | 'not' | 'except' | 'instead' | 'without' | 'no';

type Words = Partial<Readonly<Record<ExclusionKind, string>>>;

/** The words of a language that exclude a name, as regular expressions in which " " is any white space, and " ?" also none. */
interface Language {
  readonly before?: Words;
  readonly behind?: Words;
  /** Between words and the name behind them. */
  readonly prepositions?: string;
  /** With this word after it, `except` adds: "außer Slack soll auch Teams die Nachricht bekommen". */
  readonly also?: string;
}

export interface ExclusionPhrase {
  readonly kind: ExclusionKind;
  /** Matches the words, with the prepositions after them. */
  readonly words: RegExp;
  readonly stands: 'before' | 'behind';
  /** Names are capitalized words and what the catalogue knows; only the latter; or any word in Latin letters, too. */
  readonly takes: 'names' | 'known' | 'latin';
  /** Matches the word that makes it add. */
  readonly also: RegExp | undefined;
}

/** The start of a clause, and of a sentence. */
const CLAUSE = String.raw`(?<=(?:^|[.,;:!?(–—\-]|\b(?:and|but|please|pls|und|aber|bitte))\s*)`;
const SENTENCE = String.raw`(?<=(?:^|[.!?])\s*)`;

/** By language code. */
const LATIN: Readonly<Record<string, Language>> = {
  en: {
    before: {
      but: '(?:but|and)(?: please)? not',
      not: `[,;(–—-] ?(?:not|never)|(?:just|preferably|ideally) not|(?:without|avoid) using|${CLAUSE}(?:never|don['’]?t|do not) use|(?:don['’]?t|do not) (?:want|wish|like) to use`,
      except: 'except|excluding|apart from|any(?:thing|where) but|(?:(?:some|any)thing )?other than',
      instead: 'rather than|instead of',
      without: String.raw`without|w/o|but(?<=\bany(?: \p{L}+){1,2} but)`,
      no: `${SENTENCE}not|${CLAUSE}(?:no|avoid)|(?:that|which)(?:(?: is| are|['’]?s) not| (?:is|are)n['’]?t)(?! (?:in|on|at|from|with|for))|(?:i|we) (?:don['’]?t|do not) want|${CLAUSE}(?:don['’]?t|do not) (?:send|post|put|save|store|create|make|share)(?: it| this| them)? (?:via|with|to|in|on|through|using)`,
    },
    prepositions: 'for|in|on|to|via|with|using|by|through|from|the|our|my',
    also: 'also|too|as well',
  },
  de: {
    before: {
      but: '(?:aber|und) nicht',
      not: '(?:nur|bloß|bitte|,) nicht',
      except: 'außer',
      instead: '(?:an)?statt',
      without: 'ohne',
      no: `${CLAUSE}keine?n?`,
    },
    prepositions: 'in|mit|über|per|auf|von|via|bei',
    also: 'auch',
  },
  fr: {
    before: {
      but: 'mais pas',
      not: '(?:surtout|,) pas|sans (?:utiliser|passer par)',
      except: 'sauf',
      instead: 'plutôt que|au lieu de',
      without: 'sans',
    },
    prepositions: 'dans|avec|sur|par|via',
    also: 'aussi|également',
  },
  es: {
    before: {
      but: 'pero no',
      not: 'que no sea|no uses?|sin usar',
      except: 'excepto|salvo|cualquier cosa menos',
      instead: 'en (?:vez|lugar) de',
      without: 'sin',
    },
    prepositions: 'en|a|con|por',
    also: 'también',
  },
  it: {
    before: {
      but: 'ma non',
      not: ', non|non usare|senza usare',
      except: 'tranne|eccetto',
      instead: 'invece di|al posto di',
      without: 'senza',
    },
    prepositions: 'in|con|su|via',
    also: 'anche',
  },
  pt: {
    before: {
      but: '(?:mas|e) não|nem',
      not: ', não|não use|sem usar(?: o)?',
      except: 'exceto|qualquer coisa menos',
      instead: 'em vez de|no lugar de',
      without: 'sem',
    },
    prepositions: 'no|na|em|com|pelo|pela',
    also: 'também',
  },
  nl: {
    before: {
      but: 'maar niet',
      not: ', niet',
      except: 'behalve',
      instead: 'in plaats van',
      without: 'zonder',
    },
    prepositions: 'in|met|via|op',
    also: 'ook',
  },
  pl: {
    before: {
      but: 'ale nie',
      not: '(?:tylko|byle|,) nie',
      except: 'oprócz',
      instead: 'zamiast',
      without: 'bez',
    },
    prepositions: 'w|z|na|przez',
    also: 'też|także|również',
  },
  sv: {
    before: {
      but: 'men inte',
      not: ', inte',
      except: 'utom',
      instead: 'i ?stället för',
      without: 'utan',
    },
    prepositions: 'i|med|via|på',
    also: 'också|även',
  },
  tr: {
    behind: {
      not: '(?:ile )?değil(?! mi)|kullanmadan',
      except: 'dışında|hariç',
      instead: 'yerine',
    },
    also: 'de|da',
  },
  id: {
    before: {
      but: '(?:tapi|tetapi) (?:bukan|jangan)',
      not: 'jangan',
      except: 'kecuali|selain',
      without: 'tanpa',
    },
    prepositions: 'di|ke|lewat|via|pakai|pake|menggunakan',
    also: 'juga',
  },
  vi: {
    before: {
      but: 'nhưng không(?: phải)?',
      not: '(?:đừng|không)(?= (?:dùng|qua|bằng))',
      except: 'ngoại trừ|trừ',
      instead: 'thay vì',
    },
    prepositions: 'dùng|qua|trên|bằng|ở|vào',
  },
};

/** In these, any word in Latin letters counts as a name. */
const OTHERS: Readonly<Record<string, Language>> = {
  ru: {
    before: {
      but: '(?:но|и) не',
      not: '(?:только|[,(–—-]) не|не (?:через|используя)',
      except: 'кроме',
      instead: 'вместо',
      without: 'без',
    },
    prepositions: 'в|во|на|через|с|со|из|по',
    also: 'также|тоже|ещё|еще',
  },
  uk: {
    before: {
      but: '(?:але|і) не',
      not: '(?:тільки|лише|[,(–—-]) не|не (?:через|використовуючи)',
      except: 'о?крім',
      instead: 'замість',
      without: 'без',
    },
    prepositions: 'в|у|на|через|з|із|зі|по',
    also: 'також|теж|ще',
  },
  ar: {
    before: {
      not: 'غير|(?:و|لكن |، ?)ليس',
      except: 'باستثناء|ما عدا|عدا',
      instead: 'بدلا من|بدلاً من',
      without: 'بدون|دون',
    },
    prepositions: 'في|على|عبر|من خلال',
  },
  zh: {
    before: {
      not: '(?:不要|别|別)(?:用|在)',
      except: '除了',
      instead: '而不是',
      no: '不要|不用|不想用',
    },
    behind: { except: '以外[での]?|之外' },
    prepositions: '在|通过|透過',
    also: '也|还|還|も',
  },
  ja: { behind: { not: '(?:では|じゃ)なくて?|(?:を|は)使わ(?:ずに?|ないで)|抜きで?' } },
  ko: {
    behind: {
      not: '말고|(?:이|가) 아닌(?! ?가)',
      except: '(?:을|를)? ?(?:제외(?:하고|한)|빼고)',
      instead: '대신에?',
    },
  },
  hi: {
    behind: {
      not: 'के बिना',
      except: 'के अलावा|(?:को )?छोड़कर',
      instead: 'के बजाय|की (?:जगह|बजाय)',
    },
    also: 'भी',
  },
};

const LETTER = String.raw`[\p{L}\p{N}\p{M}]`;
const UNSPACED = /\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Hangul}/u;
/** Words that are no part of others, except in scripts without spaces; a comma may follow a word. */
const alone = (words: string) =>
  UNSPACED.test(words)
    ? `(?:${words})`
    : String.raw`(?:(?<!${LETTER})|(?=[,;(–—،]))(?:${words})(?!${LETTER})`;
const expression = (source: string, flags: string) =>
  new RegExp(source.replaceAll(' ?', String.raw`\s*`).replaceAll(' ', String.raw`\s+`), flags);

const phrasesOf =
  (takes: 'names' | 'latin') =>
  ({ before = {}, behind = {}, prepositions, also }: Language): ExclusionPhrase[] => {
    const between = prepositions === undefined ? '' : String.raw`(?:\s*${alone(prepositions)})*`;
    const phrase = (kind: ExclusionKind, words: string, stands: 'before' | 'behind'): ExclusionPhrase => ({
      kind,
      stands,
      takes: kind === 'without' || kind === 'no' ? 'known' : takes,
      words: expression(alone(words) + (stands === 'before' ? between : ''), 'giu'),
      also: also !== undefined && kind === 'except' ? expression(alone(also), 'iu') : undefined,
    });
    const all = (words: Words, stands: 'before' | 'behind') =>
      (Object.entries(words) as [ExclusionKind, string][]).map(([kind, own]) => phrase(kind, own, stands));
    return [...all(before, 'before'), ...all(behind, 'behind')];
  };

export const EXCLUSION_PHRASES: readonly ExclusionPhrase[] = [
  ...Object.values(LATIN).flatMap(phrasesOf('names')),
  ...Object.values(OTHERS).flatMap(phrasesOf('latin')),
];
