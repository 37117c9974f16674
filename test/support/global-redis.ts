import type { TestProject } from 'vitest/node';
import { findRedis } from './redis.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Whether `startRedis` finds a server to start. */
    hasRedis: boolean;
  }
}

/** Without a Redis server installed its tests are skipped, unless the environment requires it. */
export default function setup(project: TestProject): void {
  const hasRedis = findRedis() !== undefined;
  project.provide('hasRedis', hasRedis);
  if (hasRedis) return;
  const missing = 'no Redis server is installed (apt-get install redis-server)';
  if (process.env['SWITCHBOARD_TEST_REQUIRE_REDIS'] === '1') throw new Error(missing);
  console.warn(`The tests on Redis are skipped: ${missing}.`);
}
