import { readFile } from 'node:fs/promises';

/** Returns the version from package.json. */
export async function packageVersion(): Promise<string> {
  const manifest: unknown = JSON.parse(
    await readFile(new URL('../../package.json', import.meta.url), 'utf8'),
  );
  return (manifest as { version: string }).version;
}
