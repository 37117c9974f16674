import { randomBytes } from 'node:crypto';
import { mkdir, readdir } from 'node:fs/promises';
import path from 'node:path';
import { openSession, post } from '../load.ts';
import { mcpCall, step, type Peer } from './peer.ts';

const NAME = 'mcp-contextforge-gateway';
const VERSION = '1.0.7.post20260921';

/**
 * Its tuning guide's profile for MCP alone, with caches in memory in place of Redis. Stateful sessions are on, as it keeps
 * a session with the upstream for a session of a client only; without them each call begins one, and takes six times as
 * long. Sessions live in one process, so there is one worker: more need Redis.
 */
const SETTINGS = {
  USE_STATEFUL_SESSIONS: 'true',
  CACHE_TYPE: 'memory',
  AUTH_REQUIRED: 'false',
  ALLOW_UNAUTHENTICATED_ADMIN: 'true',
  RATE_LIMITING_ENABLED: 'false',
  SSRF_ALLOW_LOCALHOST: 'true',
  SSRF_ALLOW_PRIVATE_NETWORKS: 'true',
  LOG_LEVEL: 'ERROR',
  MCPGATEWAY_UI_ENABLED: 'false',
  MCPGATEWAY_ADMIN_API_ENABLED: 'false',
  MCPGATEWAY_A2A_ENABLED: 'false',
  MCPGATEWAY_CATALOG_ENABLED: 'false',
  LLMCHAT_ENABLED: 'false',
  PLUGINS_ENABLED: 'false',
  OBSERVABILITY_ENABLED: 'false',
  ENABLE_METRICS: 'false',
  CORRELATION_ID_ENABLED: 'false',
  DB_METRICS_RECORDING_ENABLED: 'false',
  COMPRESSION_ENABLED: 'false',
};

const venv = (folder: string, program: string) => path.join(folder, 'venv/bin', program);

export const contextForge: Peer = {
  id: 'contextforge',
  name: 'ContextForge',
  version: VERSION,
  how: 'POST /mcp, one session; SQLite, one worker, stateful sessions, the MCP-only profile of its tuning guide, no authentication, no rate limit',
  async install(folder) {
    await mkdir(folder, { recursive: true });
    await step('python3', ['-m', 'venv', path.join(folder, 'venv')]);
    await step(venv(folder, 'pip'), ['install', '--quiet', `${NAME}==${VERSION}`]);
  },
  async installed(folder) {
    const entries = await readdir(path.join(folder, 'venv/lib'), { recursive: true });
    const pattern = /mcp_contextforge_gateway-([^/]+)\.dist-info$/;
    const version = entries.map(entry => pattern.exec(entry)?.[1]).find(found => found !== undefined);
    if (version === undefined) throw new Error(`no ${NAME} in ${folder}`);
    return version;
  },
  command({ folder, work, port }) {
    const secret = () => randomBytes(32).toString('hex');
    const secrets = {
      JWT_SECRET_KEY: secret(),
      AUTH_ENCRYPTION_SECRET: secret(),
      PLATFORM_ADMIN_PASSWORD: `Aa1-${secret()}`,
      BASIC_AUTH_PASSWORD: `Aa1-${secret()}`,
    };
    return Promise.resolve({
      file: venv(folder, 'mcpgateway'),
      args: ['--host', '127.0.0.1', '--port', String(port), '--no-access-log'],
      env: { ...SETTINGS, ...secrets, DATABASE_URL: `sqlite:///${path.join(work, 'gateway.db')}` },
    });
  },
  async connect(origin, upstream, size) {
    const gateway = JSON.stringify({ name: 'up', url: upstream, transport: 'STREAMABLEHTTP' });
    const { status, text } = await post(
      `${origin}/gateways`,
      { 'content-type': 'application/json' },
      gateway,
    );
    // A conflict: it is registered already.
    if (status >= 300 && status !== 409) throw new Error(`no gateway: HTTP ${status} ${text}`);
    const url = `${origin}/mcp`;
    return { url, headers: await openSession(url), body: mcpCall('up-echo', size) };
  },
};
