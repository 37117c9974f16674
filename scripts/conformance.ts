/**
 * `npm run conformance`: the official MCP conformance suite against `/mcp` (revision 2026-07-28). Starts Switchboard on a
 * temporary folder, and in front of it a relay on loopback that adds the API key, which the suite cannot send.
 * Fails when a check fails that conformance-expected.yml does not explain.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const KEY = 'the-key-of-the-conformance-run-32-chars';
const here = (file: string) => fileURLToPath(new URL(file, import.meta.url));

const folder = mkdtempSync(path.join(tmpdir(), 'sb-'));
const switchboard = spawn(process.execPath, [here('../bin/switchboard.js')], {
  env: {
    ...process.env,
    PORT: '0',
    LOG_LEVEL: 'error',
    SWITCHBOARD_DATA_DIR: folder,
    SWITCHBOARD_CATALOGUE: here('../test/support/one-server.jsonl'),
    SWITCHBOARD_API_KEY: KEY,
    SWITCHBOARD_RATE_LIMIT: 'off',
  },
  stdio: ['ignore', 'pipe', 'inherit'],
});
const ended = once(switchboard, 'exit');
let target: URL | undefined;
for await (const line of createInterface({ input: switchboard.stdout })) {
  const url = /^Listening on (\S+)$/.exec(line)?.[1];
  if (url !== undefined) {
    target = new URL(url);
    break;
  }
}
switchboard.stdout.resume();

function relay(incoming: IncomingMessage, outgoing: ServerResponse): void {
  const { hostname, port } = target ?? new URL('http://127.0.0.1:1');
  const { method, url, headers } = incoming;
  const onward = request(
    { hostname, port, method, path: url, headers: { ...headers, 'x-api-key': KEY } },
    answer => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    },
  );
  onward.once('error', () => outgoing.destroy());
  outgoing.once('close', () => onward.destroy());
  incoming.pipe(onward);
}
const front = createServer(relay);
await once(front.listen(0, '127.0.0.1'), 'listening');
const { port } = front.address() as AddressInfo;

const suite = here('../node_modules/@modelcontextprotocol/conformance/dist/index.js');
const args = ['server', '--url', `http://127.0.0.1:${port}/mcp`, '--requirements', '2026-07-28'];
const child = spawn(
  process.execPath,
  [suite, ...args, '--expected-failures', here('conformance-expected.yml'), ...process.argv.slice(2)],
  {
    stdio: 'inherit',
  },
);
const [code] = (await once(child, 'exit')) as [number | null];

front.close();
switchboard.kill('SIGTERM');
await ended;
rmSync(folder, { recursive: true });
process.exitCode = code ?? 1;
