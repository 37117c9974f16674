import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { openSession } from '../load.ts';
import { installedPackage, installPackage, mcpCall, type Peer } from './peer.ts';

const NAME = '@1mcp/agent';
const VERSION = '0.35.0';

/** Where a registry does not have it, its package made from the tag of its repository can be installed into the folder. */
export const oneMcp: Peer = {
  id: '1mcp',
  name: '1mcp',
  version: VERSION,
  how: 'POST /mcp, one session; log level error; no authentication, which is its default',
  install: folder => installPackage(folder, NAME, VERSION),
  installed: folder => installedPackage(folder, NAME),
  async command({ folder, work, port, upstream }) {
    const config = path.join(work, 'mcp.json');
    await writeFile(
      config,
      JSON.stringify({ mcpServers: { up: { type: 'streamableHttp', url: upstream } } }),
    );
    const program = path.join(folder, 'node_modules', NAME, 'build/index.js');
    const address = ['--transport', 'http', '--host', '127.0.0.1', '--port', String(port)];
    return {
      file: process.execPath,
      args: [program, 'serve', ...address, '--config-dir', work, '--log-level', 'error'],
    };
  },
  async connect(origin, _upstream, size) {
    const url = `${origin}/mcp`;
    return { url, headers: await openSession(url), body: mcpCall('up_1mcp_echo', size) };
  },
};
