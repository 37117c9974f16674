import path from 'node:path';
import { configDefaults, defineConfig } from 'vitest/config';

/** `npm run test:full`: the long tests too, and every case on both databases. */
const isFullRun = process.env['SWITCHBOARD_TEST_FULL'] === '1';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: [...configDefaults.exclude, ...(isFullRun ? [] : ['test/**/*.full.test.ts'])],
    globalSetup: [
      'test/support/global-pglite.ts',
      'test/support/global-postgres.ts',
      'test/support/global-redis.ts',
    ],
    // Real servers and a real database on a slow shared machine: these bounds only end what hangs.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    expect: { poll: { timeout: 60_000 } },
    pool: 'forks',
    // Two processes run all files and import the sources once: alone in a process, each file would import them again. No test may
    // leave anything behind that another could see, such as a changed environment.
    isolate: false,
    maxWorkers: 2,
    execArgv: [
      `--import=${path.resolve(import.meta.dirname, 'bin/resolve-drizzle.js')}`,
      // Hardly a test file runs for so long that optimising PGlite's WebAssembly would pay.
      '--liftoff-only',
      '--max-semi-space-size=16',
    ],
  },
});
