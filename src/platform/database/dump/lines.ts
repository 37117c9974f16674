import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { PassThrough } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { linesOf } from '../../lines.ts';
import { ImportRefused } from './format.ts';

/**
 * The lines of a gzipped file, one at a time; a last line needs its newline.
 * @throws ImportRefused for a file that cannot be read, is not gzipped, is damaged or ends too early: some only at its end.
 */
export async function* fileLines(file: string): AsyncGenerator<string> {
  const text = new PassThrough();
  const whole = pipeline(createReadStream(file), createGunzip(), text);
  whole.catch(() => {});
  let rest: string;
  try {
    rest = yield* linesOf(text as AsyncIterable<Buffer>);
    await whole;
  } catch (error) {
    throw new ImportRefused(explain(file, error), { cause: error });
  }
  if (rest !== '')
    throw new ImportRefused(`${file} is cut short: its last line has no end. Nothing was imported.`);
}

function explain(file: string, error: unknown): string {
  const { code = '', message } = error as NodeJS.ErrnoException;
  if (message === 'incorrect header check')
    return `${file} is no file that \`switchboard export\` wrote (for a catalogue, use \`catalogue import\`).`;
  if (code.startsWith('Z_')) return `${file} is damaged or cut short (${message}). Nothing was imported.`;
  return `${file} cannot be read: ${message}`;
}
