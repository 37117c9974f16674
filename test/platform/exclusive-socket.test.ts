import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, statSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { isAnswered, listenExclusively, SocketInUse } from '../../src/platform/exclusive-socket.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'sb-'));
afterAll(() => rm(folder, { recursive: true }));

const close = (server: ReturnType<typeof createServer>) => new Promise(resolve => server.close(resolve));

describe('listenExclusively', () => {
  it('lets one process in and refuses the second', async () => {
    const at = path.join(folder, 'a.sock');
    const first = createServer();
    await listenExclusively(first, at);
    expect(statSync(at).mode & 0o777).toBe(0o600);
    await expect(listenExclusively(createServer(), at)).rejects.toThrow(SocketInUse);
    await close(first);
    const second = createServer();
    await listenExclusively(second, at);
    await close(second);
  });

  it('takes over what a killed process left behind, and only one of many takers gets it', async () => {
    const at = path.join(folder, 'b.sock');
    const script = `require('node:net').createServer().listen(${JSON.stringify(at)}, () => console.log('up'))`;
    const killed = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(killed.stdout, 'data');
    killed.kill('SIGKILL');
    await once(killed, 'exit');
    expect(await isAnswered(at)).toBe(false);

    const servers = Array.from({ length: 8 }, () => createServer());
    const outcomes = await Promise.allSettled(servers.map(server => listenExclusively(server, at)));
    const winners = outcomes.filter(outcome => outcome.status === 'fulfilled');
    expect(winners).toHaveLength(1);
    for (const outcome of outcomes)
      if (outcome.status === 'rejected') expect(outcome.reason).toBeInstanceOf(SocketInUse);
    await Promise.all(servers.filter(server => server.listening).map(close));
  });

  it('says so when the path is too long for a socket', async () => {
    await expect(listenExclusively(createServer(), path.join(folder, 'x'.repeat(120)))).rejects.toThrow(
      /too long.*SWITCHBOARD_DATA_DIR/,
    );
  });
});
