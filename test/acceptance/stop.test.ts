import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { makeDataDir } from '../support/data-dir.ts';
import { begin, SAME_SIGNAL_MS, serve, temporaryFolder } from '../support/program.ts';
import { eventually } from '../support/processes.ts';

const SMALL = 'test/support/one-server.jsonl';
const KEY = 'a-key-for-tests-of-at-least-32-characters';
/** Long enough that no test sees its end. */
const FOR_EVER_MS = '300000';

it('told to stop, it says so at /readyz and serves on, new connections too; a second signal ends it', async () => {
  await using folder = temporaryFolder();
  const log = path.join(folder.path, 'log');
  const env = {
    SWITCHBOARD_DATA_DIR: await makeDataDir(folder.path),
    SWITCHBOARD_CATALOGUE: SMALL,
    SWITCHBOARD_API_KEY: KEY,
    SWITCHBOARD_DRAIN_MS: FOR_EVER_MS,
    LOG_LEVEL: 'info',
  };
  await using program = await serve(env, log);
  await program.ready();
  process.kill(program.pid, 'SIGTERM');
  // Each on a connection of its own.
  const headers = { connection: 'close', 'x-api-key': KEY, 'content-type': 'application/json' };
  const readiness = () => fetch(`${program.url}/readyz`, { headers });
  await eventually('it is not ready any more', async () => (await readiness()).status === 503);
  expect(await (await readiness()).json()).toMatchObject({ status: 'stopping' });
  await eventually('the log says so', () => readFileSync(log, 'utf8').includes('a second signal ends them'));
  expect((await fetch(`${program.url}/healthz`, { headers })).status).toBe(200);
  const body = JSON.stringify({ query: 'track issues', limit: 1 });
  const found = await fetch(`${program.url}/v1/search`, { method: 'POST', headers, body });
  expect(found.status).toBe(200);
  await delay(SAME_SIGNAL_MS);
  expect(await program.stop()).toBeNull();
});

it('ends by itself when the time is over; one process is all that `auto` means on the embedded database', async () => {
  await using folder = temporaryFolder();
  await using program = await serve({
    SWITCHBOARD_DATA_DIR: await makeDataDir(folder.path),
    SWITCHBOARD_CATALOGUE: SMALL,
    SWITCHBOARD_DRAIN_MS: '50',
    SWITCHBOARD_WORKERS: 'auto',
  });
  expect(program.printed).toContain('Workers: 1, because the embedded database supports one process.');
  expect(await program.stop('SIGTERM')).toBe(0);
});

it.each([
  ['Ctrl-C', 130],
  ['SIGTERM', 0],
] as const)('ends a first start on %s before a key is made', async (how, code) => {
  await using folder = temporaryFolder();
  const env = { SWITCHBOARD_DATA_DIR: folder.path, LOG_LEVEL: 'info' };
  await using program = begin(['serve'], { ...env, PORT: '0' }, { ownGroup: true });
  await program.complaint(/starting/);
  if (how === 'Ctrl-C') program.interruptGroup();
  else program.kill('SIGTERM');
  const ended = await program.finished;
  expect(ended).toMatchObject({ code, stdout: '' });
  expect(ended.stderr).not.toMatch(/Could not create|"msg":"ready"/);
  expect(readdirSync(folder.path).filter(name => name.includes('.new-'))).toEqual([]);
});
