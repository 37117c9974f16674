import type { Entry, Tool } from '../../src/core/catalogue/entry.ts';
import { randomFrom, shuffled } from '../random.ts';

/** Descriptions of each name: every other one has to be embedded. */
const DESCRIPTIONS = 3;
/** The share of tools that a name has from other servers, as one in so many of its own. */
const BORROWED_SHARE = 3;
const MAX_DESCRIPTION_LENGTH = 4_000;

const CONSONANTS = 'bdfgklmnprstvz';
const VOWELS = 'aeiou';
const SYLLABLES = Array.from(CONSONANTS, consonant => Array.from(VOWELS, vowel => consonant + vowel)).flat();
/** No multiple of 2, 5 or 7, so that all numbers below 70^4 give different words. */
const WORD_STEP = 9_999_991;

/**
 * Catalogues of any size, recombined from the texts of a real one. Server number n is the same in all of them.
 *
 * Servers that share a name also share the texts that an embedder reads: three descriptions, made of sentences of two originals,
 * and a stock of tools, from up to three originals. Each server has another choice of these tools, and a word of its own in an argument.
 */
export class RecombinedCatalogue {
  readonly #originals: readonly Entry[];
  readonly #stocks = new Map<number, readonly Tool[]>();

  /** @throws RangeError if there are no originals */
  constructor(originals: readonly Entry[]) {
    if (originals.length === 0) throw new RangeError('the source has no servers');
    this.#originals = shuffled(originals, randomFrom(1));
  }

  server(number: number): Entry {
    const position = number % this.#originals.length;
    const { id, name, tools = [] } = this.#original(position);
    const word = wordOf(number);
    const chosen = shuffled(this.#stockOf(position), randomFrom(number)).slice(0, tools.length);
    const [first, ...others] = chosen;
    return {
      id: `${id.slice(0, 100)}.${word}`,
      name,
      description: this.#descriptionOf(position, Math.floor(number / this.#originals.length) % DESCRIPTIONS),
      remote_url: `https://${word}.example.com/mcp`,
      tools: first === undefined ? [] : [withArgument(first, word), ...others],
    };
  }

  /** Returns the servers with the numbers from `from` to before `to`. */
  servers(from: number, to: number): Entry[] {
    return Array.from({ length: to - from }, (_, at) => this.server(from + at));
  }

  #original(position: number): Entry {
    const original = this.#originals[position % this.#originals.length];
    if (original === undefined) throw new RangeError(`there is no original ${position}`);
    return original;
  }

  #descriptionOf(position: number, variant: number): string {
    const random = randomFrom(position * DESCRIPTIONS + variant);
    const sentences = [position, position + 1 + variant].flatMap(of => {
      const all = this.#original(of).description.split(/(?<=[.!?])\s+/);
      return shuffled(all, random).slice(0, Math.ceil(all.length / 2));
    });
    return sentences.join(' ').slice(0, MAX_DESCRIPTION_LENGTH);
  }

  /** Returns the original's own tools, and some of the next two originals'; names are unique. */
  #stockOf(position: number): readonly Tool[] {
    const known = this.#stocks.get(position);
    if (known) return known;
    const { tools = [] } = this.#original(position);
    const foreign = [position + 1, position + 2].flatMap(next => this.#original(next).tools ?? []);
    const borrowed = shuffled(foreign, randomFrom(position)).slice(
      0,
      Math.ceil(tools.length / BORROWED_SHARE),
    );
    const stock = [...new Map([...borrowed, ...tools].map(tool => [tool.name, tool])).values()];
    this.#stocks.set(position, stock);
    return stock;
  }
}

/** Returns the tool with one more argument, which comes first: search reads only the beginning of long schemas. */
function withArgument(tool: Tool, name: string): Tool {
  const { properties } = tool.input_schema;
  const argument = { [name]: { type: 'string', description: `The ${name} to use.` } };
  const all = { ...argument, ...(properties as object | undefined) };
  return { ...tool, input_schema: { ...tool.input_schema, properties: all } };
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
