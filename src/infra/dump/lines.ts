import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { PassThrough } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { ImportRefused } from './format.ts';

const NEWLINE = 0x0a;

/**
 * The lines of a gzipped file, one at a time; a last line needs its newline. (`node:readline` would also split at U+2028,
 * which JSON may have in it.)
 * @throws ImportRefused for a file that cannot be read, is not gzipped, is damaged or ends too early: some only at its end.
 */
export async function* linesOf(file: string): AsyncGenerator<string> {
  const text = new PassThrough();
  const whole = pipeline(createReadStream(file), createGunzip(), text);
  whole.catch(() => {});
  let begun: Buffer[] = [];
  try {
    for await (const chunk of text as AsyncIterable<Buffer>) {
      let from = 0;
      for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, from)) {
        yield Buffer.concat([...begun, chunk.subarray(from, at)]).toString('utf8');
        begun = [];
        from = at + 1;
      }
      if (from < chunk.length) begun.push(chunk.subarray(from));
    }
    await whole;
  } catch (error) {
    throw new ImportRefused(explain(file, error), { cause: error });
  }
  if (begun.length > 0)
    throw new ImportRefused(`${file} is cut short: its last line has no end. Nothing was imported.`);
}

function explain(file: string, error: unknown): string {
  const { code = '', message } = error as NodeJS.ErrnoException;
  if (message === 'incorrect header check')
    return `${file} is no file that \`switchboard export\` wrote (for a catalogue, use \`catalogue import\`).`;
  if (code.startsWith('Z_')) return `${file} is damaged or cut short (${message}). Nothing was imported.`;
  return `${file} cannot be read: ${message}`;
}
