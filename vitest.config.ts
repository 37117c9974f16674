import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: [
      'test/support/global-pglite.ts',
      'test/support/global-postgres.ts',
      'test/support/global-redis.ts',
    ],
    // Real servers and a real database on a slow shared machine: these bounds only end what hangs.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    pool: 'forks',
    maxWorkers: 2,
  },
});
