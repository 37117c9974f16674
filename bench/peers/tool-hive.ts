import { execFile as execFileWithCallback } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { openSession } from '../load.ts';
import { mcpCall, step, type Peer } from './peer.ts';

const MODULE = 'github.com/stacklok/toolhive/cmd/vmcp';
const VERSION = 'v0.44.0';
const execFile = promisify(execFileWithCallback);

/** JSON is YAML. */
const configuration = (upstream: string) =>
  JSON.stringify({
    name: 'bench',
    groupRef: 'bench',
    incomingAuth: { type: 'anonymous' },
    outgoingAuth: { source: 'inline', default: { type: 'unauthenticated' } },
    aggregation: { conflictResolution: 'prefix', conflictResolutionConfig: { prefixFormat: '{workload}_' } },
    backends: [{ name: 'up', url: upstream, transport: 'streamable-http' }],
  });

export const toolHive: Peer = {
  id: 'vmcp',
  name: 'ToolHive vMCP',
  version: VERSION,
  how: 'POST /mcp, one session; anonymous, no audit, no telemetry',
  async install(folder) {
    await mkdir(folder, { recursive: true });
    await step('go', ['install', `${MODULE}@${VERSION}`], { GOBIN: path.resolve(folder) });
  },
  async installed(folder) {
    const { stdout } = await execFile('go', ['version', '-m', path.join(folder, 'vmcp')]);
    return /^\s+mod\s+\S+\s+(\S+)/m.exec(stdout)?.[1] ?? 'of no known version';
  },
  async command({ folder, work, port, upstream }) {
    const config = path.join(work, 'vmcp.yaml');
    await writeFile(config, configuration(upstream));
    const address = ['--host', '127.0.0.1', '--port', String(port)];
    return { file: path.join(folder, 'vmcp'), args: ['serve', '--config', config, ...address] };
  },
  async connect(origin, _upstream, size) {
    const url = `${origin}/mcp`;
    return { url, headers: await openSession(url), body: mcpCall('up_echo', size) };
  },
};
