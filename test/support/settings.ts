import { globSync, readFileSync } from 'node:fs';

/** The names of the environment variables that `src/config/` reads. */
export const settings: ReadonlySet<string> = new Set(
  globSync('src/config/*.ts').flatMap(file =>
    [...readFileSync(file, 'utf8').matchAll(/^ {2}([A-Z][A-Z0-9_]+): [a-z]/gm)].map(([, name]) => name ?? ''),
  ),
);
