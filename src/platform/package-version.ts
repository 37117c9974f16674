import { readFile } from 'node:fs/promises';

/** The version in this program's own package.json. */
export async function packageVersion(): Promise<string> {
  const manifest: unknown = JSON.parse(
    await readFile(new URL('../../package.json', import.meta.url), 'utf8'),
  );
  return (manifest as { version: string }).version;
}
