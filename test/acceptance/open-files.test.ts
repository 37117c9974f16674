import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import path from 'node:path';
import { writeFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { makeDataDir } from '../support/data-dir.ts';
import { serve, temporaryFolder } from '../support/program.ts';
import { startV2Server } from '../support/upstreams/v2.ts';

const KEY = 'a-key-for-tests-of-at-least-32-characters';
const MAX_FILES = 200;

/** Opens more connections than the server can have, and waits until it has closed one for want of a descriptor. */
async function exhaust(port: number): Promise<Socket[]> {
  const sockets = Array.from({ length: MAX_FILES }, () => connect(port, '127.0.0.1').on('error', () => {}));
  // The server waits for the rest of the request.
  for (const socket of sockets) socket.write('GET ');
  await Promise.race(sockets.map(socket => new Promise(resolve => socket.once('close', resolve))));
  return sockets;
}

it.skipIf(process.platform !== 'linux')(
  'a server that runs out of file descriptors has warned of it, blames no other, and recovers',
  async () => {
    await using folder = temporaryFolder();
    await using upstream = await startV2Server();
    const catalogue = path.join(folder.path, 'catalogue.jsonl');
    const entry = { id: 'v2', name: 'V2', description: 'V2.', remote_url: upstream.url };
    writeFileSync(catalogue, JSON.stringify({ ...entry, auth: { kind: 'none' } }));
    const logFile = path.join(folder.path, 'log');
    const env = {
      SWITCHBOARD_DATA_DIR: await makeDataDir(folder.path),
      SWITCHBOARD_CATALOGUE: catalogue,
      SWITCHBOARD_API_KEY: KEY,
      SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
    };
    await using program = await serve(env, logFile, undefined, MAX_FILES);
    await program.ready();
    const logged = (level: number) =>
      readFileSync(logFile, 'utf8')
        .split('\n')
        .slice(0, -1)
        .map(line => JSON.parse(line))
        .filter(line => line.level === level);
    expect(logged(40)).toContainEqual(
      expect.objectContaining({ openFiles: MAX_FILES, SWITCHBOARD_MAX_STREAMS: 10_000 }),
    );

    // Its one connection stays open.
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const ask = async (at: string, body: object) => {
      const headers = { 'x-api-key': KEY, 'content-type': 'application/json' };
      const sent = request(program.url + at, { method: 'POST', agent, headers });
      sent.end(JSON.stringify(body));
      const [response] = await once(sent, 'response');
      return { status: response.statusCode, json: JSON.parse(await text(response)) };
    };
    const call = () =>
      ask('/v1/mcp/tools/call', { server_id: 'v2', name: 'echo', arguments: { message: 'hi' } });
    expect((await ask('/v1/search', { query: 'v2' })).status).toBe(200);
    const held = await exhaust(Number(new URL(program.url).port));
    for (let attempt = 0; attempt < 6; attempt++)
      expect(await call()).toMatchObject({ status: 503, json: { code: 'unavailable' } });
    expect(logged(40).filter(line => /ran out of file descriptors/.test(line.msg))).toHaveLength(1);

    for (const socket of held) socket.destroy();
    await expect.poll(async () => (await call()).status, { timeout: 30_000 }).toBe(200);
    agent.destroy();
    expect(await program.stop('SIGTERM')).toBe(0);
  },
);
