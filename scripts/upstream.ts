/**
 * `npm run upstream [-- PORT]`: a real MCP server on loopback (port 3001 unless given) to try the proxy with, offline.
 */
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';

const port = process.argv[2] ?? '3001';
const entry = createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/dist/index.js');
const preload = new URL('loopback-only.js', import.meta.url).href;
const child = spawn(process.execPath, ['--import', preload, entry, 'streamableHttp'], {
  env: { ...process.env, PORT: port },
  stdio: ['ignore', 'ignore', 'inherit'],
});
child.once('spawn', () =>
  console.log(`server-everything on http://127.0.0.1:${port}/mcp (stop with Ctrl-C)`),
);
child.once('exit', code => (process.exitCode = code ?? 0));
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => child.kill(signal));
