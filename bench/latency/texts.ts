import { readFile } from 'node:fs/promises';
import { gunzipSync } from 'node:zlib';
import type { Entry } from '../../src/core/catalogue/entry.ts';
import { readEntries } from '../../src/core/catalogue/import-file.ts';

export const SHIPPED = 'catalogue/servers.jsonl';

/** JSON Lines, also compressed (.gz). */
export async function readText(file: string): Promise<string> {
  const bytes = await readFile(file);
  return (file.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
}

export const readCatalogue = async (file: string): Promise<Entry[]> =>
  readEntries(await readText(file), { allowHttp: true }).entries;

/** As many different requests of about eight words: how the tools of a catalogue describe themselves. */
export function requestsFor(entries: readonly Entry[], count: number): string[] {
  const requests = new Set<string>();
  const described = entries.flatMap(({ tools = [], description }) => [
    description,
    ...tools.map(tool => tool.description),
  ]);
  // A step without a common divisor, so that the requests come from all over the catalogue.
  const step = 7_919;
  for (let at = 0; requests.size < count && at < described.length; at++) {
    const words = (described[(at * step) % described.length] ?? '').split(/\s+/).slice(0, 8);
    if (words.length === 8) requests.add(words.join(' '));
  }
  if (requests.size < count) throw new Error(`the catalogue gives ${requests.size} requests, not ${count}`);
  return [...requests];
}

/** That many servers: the catalogue's own, then copies of them in which every third word is another one's. The same every time. */
export function enlarged(entries: readonly Entry[], count: number): Entry[] {
  const words = [...new Set(entries.flatMap(({ description }) => description.split(/\s+/)))].sort();
  return Array.from({ length: count }, (_, at) => {
    const copy = Math.floor(at / entries.length);
    const entry = entries[at % entries.length];
    if (!entry) throw new Error('the catalogue is empty');
    if (copy === 0) return entry;
    const vary = (text: string) =>
      text.replace(/\S+/g, (word, offset: number) => {
        const random = hash(`${word} ${offset} ${copy}`);
        return random % 3 === 0 ? (words[random % words.length] ?? word) : word;
      });
    return {
      ...entry,
      id: `${copy}.${entry.id}`.slice(0, 128),
      description: vary(entry.description).slice(0, 4_000),
      tools: (entry.tools ?? []).map(({ name, description, input_schema }) => {
        return { name, description: vary(description).slice(0, 20_000), input_schema };
      }),
    };
  });
}

/** FNV-1a, 32 bits, with its bits mixed once more. */
export function hash(text: string): number {
  let state = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) state = Math.imul(state ^ text.charCodeAt(at), 0x01000193);
  return Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) >>> 0;
}
