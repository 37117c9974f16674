import type { Config } from '../config/index.ts';
import { SocketInUse } from '../platform/exclusive-socket.ts';
import { startSwitchboard } from '../app.ts';
import type { Io } from './io.ts';
import { CommandFailed } from './admin-client.ts';

/** Serves until SIGTERM or SIGINT, then lets calls under way end. A second signal ends the process at once. */
export async function serve(config: Config, io: Io): Promise<number> {
  const stopped = firstSignal();
  try {
    await using switchboard = await startSwitchboard(config);
    io.print(introduction(config, switchboard.url ?? '', switchboard.firstKey));
    await Promise.race([stopped, switchboard.indexed.then(() => stopped)]);
    return 0;
  } catch (error) {
    if (error instanceof SocketInUse) {
      throw new CommandFailed(
        `Another Switchboard is running on ${config.dataDir}. Stop it, or set SWITCHBOARD_DATA_DIR.`,
      );
    }
    throw error;
  }
}

function firstSignal(): Promise<void> {
  return new Promise(resolve => {
    const stop = () => {
      // From here on a signal does what it does by default: it ends the process.
      process.off('SIGTERM', stop).off('SIGINT', stop);
      resolve();
    };
    process.on('SIGTERM', stop).on('SIGINT', stop);
  });
}

function introduction(config: Config, url: string, firstKey: string | undefined): string {
  const base = config.http.publicUrl ?? url;
  const key = firstKey ?? 'YOUR_KEY';
  const client = {
    mcpServers: { switchboard: { type: 'http', url: `${base}/mcp`, headers: { 'X-API-Key': key } } },
  };
  return [
    `Listening on ${url}`,
    keyLine(config, firstKey),
    '',
    'Search:',
    `  curl -s ${base}/v1/search -H 'X-API-Key: ${key}' -H 'Content-Type: application/json' -d '{"query":"create an issue in our bug tracker","limit":3}'`,
    '',
    'MCP client:',
    `  ${JSON.stringify(client)}`,
    '',
  ].join('\n');
}

function keyLine(config: Config, firstKey: string | undefined): string {
  if (firstKey !== undefined) return `API key (shown once): ${firstKey}`;
  if (config.access.apiKey !== undefined) return 'API key: the one in SWITCHBOARD_API_KEY.';
  return 'API key: as before. `npx switchboard keys create` makes another.';
}
