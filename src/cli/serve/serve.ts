import { once } from 'node:events';
import type { Config } from '../../config/index.ts';
import { CommandFailed } from '../admin-client.ts';
import { startOn } from '../failure.ts';
import type { Io } from '../terminal.ts';
import { listenToSignals } from './signals.ts';
import { serveWithWorkers, type Introduced, type WorkerTimes } from './workers.ts';

/**
 * Serves until SIGTERM or SIGINT, then lets running calls finish. Either signal also stops a start at its
 * next step. A second signal (`listenToSignals`) ends the process and its workers immediately.
 * @param times for tests of workers
 */
export async function serve(config: Config, io: Io, times?: WorkerTimes): Promise<number> {
  const signals = listenToSignals(signal => new StoppedAtStart(signal));
  try {
    if (config.http.workers > 1)
      await serveWithWorkers(config, signals, started => io.print(introduction(config, started)), times);
    else await serveAlone(config, signals.stop, io);
    return 0;
  } catch (error) {
    if (error instanceof StoppedAtStart && error.signal === 'SIGTERM') return 0;
    throw error;
  }
}

async function serveAlone(config: Config, stop: AbortSignal, io: Io): Promise<void> {
  const stopped = once(stop, 'abort');
  await using switchboard = await startOn(config, { signal: stop });
  io.print(introduction(config, switchboard));
  await Promise.race([stopped, switchboard.indexed.then(() => stopped)]);
}

/** SIGTERM or SIGINT arrived before the server was ready. */
class StoppedAtStart extends CommandFailed {
  readonly signal: NodeJS.Signals;

  constructor(signal: NodeJS.Signals) {
    super('Stopped before the server was ready. No API key was created.', 'interrupted');
    this.signal = signal;
  }
}

function introduction(config: Config, { url = '', firstKey, servers }: Introduced): string {
  const base = config.http.publicUrl ?? url;
  const key = firstKey ?? 'YOUR_KEY';
  const client = {
    mcpServers: { switchboard: { type: 'http', url: `${base}/mcp`, headers: { 'X-API-Key': key } } },
  };
  return [
    `Listening on ${url}`,
    `Catalogue: ${servers} servers.`,
    `Database: ${databaseLine(config)}.`,
    ...workersLine(config),
    `Search: ${searchLine(config)}.`,
    keyLine(config, firstKey),
    '',
    'Search:',
    `  curl -s ${base}/v1/search -H 'X-API-Key: ${key}' -H 'Content-Type: application/json' -d '{"query":"create an issue in our bug tracker","limit":3}'`,
    '',
    `In a browser: ${base}/`,
    '  npx switchboard console',
    '',
    'MCP client:',
    `  ${JSON.stringify(client)}`,
    ...signInLines(config, base),
    '',
  ].join('\n');
}

const databaseLine = ({ database, dataDir }: Config) =>
  database.url === undefined ? `embedded, in ${dataDir}` : 'Postgres';

function workersLine({ http: { workers, areWorkersAuto }, database }: Config): string[] {
  if (workers === 1 && !areWorkersAuto) return [];
  const why = database.url === undefined ? ', because the embedded database supports one process' : '';
  return [`Workers: ${workers}${why}.`];
}

const signInLines = ({ mcp: { signIn } }: Config, base: string): string[] =>
  signIn === undefined
    ? []
    : [
        '',
        'MCP client without a key, which acts as the user who signs in:',
        `  ${base}/mcp`,
        ...(signIn.external === undefined ? ['  npx switchboard connections link USER'] : []),
      ];

const searchLine = ({ search: { meilisearch, embedding } }: Config) =>
  [
    meilisearch === undefined ? 'embedded index' : 'Meilisearch',
    embedding === undefined ? 'local embedding model' : `embedding API (${embedding.model})`,
  ].join(', ');

function keyLine(config: Config, firstKey: string | undefined): string {
  if (firstKey !== undefined) return `API key (shown once): ${firstKey}`;
  if (config.access.apiKey !== undefined) return 'API key: the one in SWITCHBOARD_API_KEY.';
  return 'API key: unchanged. `npx switchboard keys create` creates another.';
}
