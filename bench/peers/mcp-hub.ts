import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { installedPackage, installPackage, type Peer } from './peer.ts';

const NAME = 'mcp-hub';
const VERSION = '4.2.1';

/** Its MCP endpoint is HTTP+SSE only, where an answer does not come with its request; so it is called by its REST endpoint. */
export const mcpHub: Peer = {
  id: NAME,
  name: NAME,
  version: VERSION,
  how: 'POST /api/servers/tools, its REST endpoint; it has no authentication',
  install: folder => installPackage(folder, NAME, VERSION),
  installed: folder => installedPackage(folder, NAME),
  async command({ folder, work, port, upstream }) {
    const config = path.join(work, 'config.json');
    await writeFile(config, JSON.stringify({ mcpServers: { up: { url: upstream } } }));
    const program = path.join(folder, 'node_modules', NAME, 'dist/cli.js');
    const preload = path.resolve('bench/peers/loopback.ts');
    return {
      file: process.execPath,
      args: ['--import', preload, program, '--port', String(port), '--config', config],
    };
  },
  connect: (origin, _upstream, size) =>
    Promise.resolve({
      url: `${origin}/api/servers/tools`,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ server_name: 'up', tool: 'echo', arguments: { size } }),
    }),
};
