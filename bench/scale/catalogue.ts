import type { Entry, Tool } from '../../src/core/catalogue/entry.ts';
import { documentsOf } from '../../src/core/search/documents.ts';
import { randomFrom, shuffled } from '../random.ts';

/** The words that a text takes from another one. */
const FOREIGN_WORDS = 12;
const MAX_DESCRIPTION_LENGTH = 4_000;

const CONSONANTS = 'bdfgklmnprstvz';
const VOWELS = 'aeiou';
const SYLLABLES = Array.from(CONSONANTS, consonant => Array.from(VOWELS, vowel => consonant + vowel)).flat();
/** No multiple of 2, 5 or 7, so that all numbers below 70^4 give different words. */
const WORD_STEP = 9_999_991;

/** A text of an original: of the server itself, or of one of its tools. */
interface Source {
  readonly description: string;
  /** Read by the embedder. */
  readonly prose: string;
}

/** The sources of a recombined text. */
export interface Mixture {
  readonly own: Source;
  /** Gives the first words. */
  readonly foreign: Source;
}

/**
 * Catalogues of any size, recombined from the texts of a real one. Server number n is the same in all of them.
 *
 * Each server has the name and the tools of one original. The description of the server and of each tool begins with a few words
 * of another text, chosen at random, so that texts hardly repeat. Each server has a word of its own in an argument, too.
 */
export class RecombinedCatalogue {
  readonly #originals: readonly Entry[];
  /** By original: the server's own text first, then one for each tool. */
  readonly #sources: readonly (readonly Source[])[];
  readonly #all: readonly Source[];

  /** @throws RangeError if there are no originals */
  constructor(originals: readonly Entry[]) {
    if (originals.length === 0) throw new RangeError('the source has no servers');
    this.#originals = shuffled(originals, randomFrom(1));
    this.#sources = this.#originals.map(sourcesOf);
    this.#all = this.#sources.flat();
  }

  server(number: number): Entry {
    const { id, name, tools = [] } = this.#originals[number % this.#originals.length] ?? unreachable();
    const [own = unreachable(), ...others] = this.mixtures(number).map(descriptionOf);
    const word = wordOf(number);
    return {
      id: `${id.slice(0, 100)}.${word}`,
      name,
      description: own,
      remote_url: `https://${word}.example.com/mcp`,
      tools: tools.map(({ name: tool, input_schema: schema }, at) => ({
        name: tool,
        description: others[at] ?? unreachable(),
        input_schema: at === 0 ? withArgument(schema, word) : schema,
      })),
    };
  }

  /** Returns the servers with the numbers from `from` to before `to`. */
  servers(from: number, to: number): Entry[] {
    return Array.from({ length: to - from }, (_, at) => this.server(from + at));
  }

  /** Returns the sources of a server's texts: its own text first, then one for each tool. */
  mixtures(number: number): Mixture[] {
    const random = randomFrom(number);
    const all = this.#all;
    return (this.#sources[number % this.#sources.length] ?? unreachable()).map(own => ({
      own,
      foreign: all[Math.floor(random() * all.length)] ?? unreachable(),
    }));
  }
}

function sourcesOf({ name, description, tools = [] }: Entry): Source[] {
  const descriptions = [description, ...tools.map(tool => tool.description)];
  const { parts } = documentsOf({ name, description, tools });
  return descriptions.map((own, at) => ({ description: own, prose: parts[at]?.prose ?? unreachable() }));
}

function descriptionOf({ own, foreign }: Mixture): string {
  const words = foreign.description.split(/\s+/).slice(0, FOREIGN_WORDS).join(' ');
  return `${words}. ${own.description}`.slice(0, MAX_DESCRIPTION_LENGTH);
}

/** Returns the schema with one more argument, which comes first: search reads only the beginning of long schemas. */
function withArgument(schema: Tool['input_schema'], name: string): Tool['input_schema'] {
  const argument = { [name]: { type: 'string', description: `The ${name} to use.` } };
  return { ...schema, properties: { ...argument, ...(schema['properties'] as object | undefined) } };
}

/** Returns a word of four syllables, a different one for each number below 24 million. */
function wordOf(number: number): string {
  let rest = (number * WORD_STEP + 1_234_567) % SYLLABLES.length ** 4;
  let word = '';
  for (let syllable = 0; syllable < 4; syllable++) {
    word += SYLLABLES[rest % SYLLABLES.length];
    rest = Math.floor(rest / SYLLABLES.length);
  }
  return word;
}

function unreachable(): never {
  throw new Error('every number has an original, and every original its texts');
}
