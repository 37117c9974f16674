import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it } from 'vitest';
import { startSwitchboard } from '../src/app.ts';
import { readConfig } from '../src/config/index.ts';
import type { Embedder } from '../src/core/search/embed/embedder.ts';
import { openTestDatabase } from './support/database.ts';

/** An embedder that embeds nothing until it is closed, and fails then. */
function stuckEmbedder(): Embedder {
  const closed = Promise.withResolvers<never>();
  closed.promise.catch(() => {});
  return {
    id: 'stuck',
    dimensions: 16,
    embed: () => closed.promise,
    close: () => Promise.resolve(closed.reject(new Error('closed'))),
  };
}

it('a stop does not wait until the catalogue is embedded', async () => {
  const dataDir = mkdtempSync(path.join(tmpdir(), 'sb-'));
  const config = readConfig({ PORT: '0', SWITCHBOARD_DATA_DIR: dataDir, LOG_LEVEL: 'silent' });
  const running = await startSwitchboard(config, {
    embedder: () => Promise.resolve(stuckEmbedder()),
    database: () => openTestDatabase(),
  });
  expect(running.servers).toBeGreaterThan(0);
  await running[Symbol.asyncDispose]();
  await expect(running.indexed).rejects.toThrow('closed');
  await rm(dataDir, { recursive: true });
});
