/** Fails when `drizzle/` does not hold what the schema files of drizzle.config.ts say: run `npm run build:migrations` then. */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import configuration from '../drizzle.config.ts';

const folder = mkdtempSync('.drizzle-check-');
try {
  cpSync('drizzle', folder, { recursive: true });
  const kit = fileURLToPath(new URL('../node_modules/drizzle-kit/bin.cjs', import.meta.url));
  execFileSync(
    process.execPath,
    [
      kit,
      'generate',
      '--dialect=postgresql',
      `--schema=${String(configuration.schema)}`,
      `--out=./${folder}`,
    ],
    {
      stdio: ['ignore', 'ignore', 'inherit'],
    },
  );
  const added = readdirSync(folder).filter(name => !readdirSync('drizzle').includes(name));
  if (added.length > 0) {
    console.error('drizzle/ is behind the schema: run npm run build:migrations');
    process.exitCode = 1;
  }
} finally {
  rmSync(folder, { recursive: true });
}
