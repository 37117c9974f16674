import type { StartOptions, Switchboard } from '../app.ts';
import { ConfigError, type Config } from '../config/index.ts';
import { SocketInUse } from '../platform/server-lifecycle.ts';
import type { Failure } from '../platform/workers/seat.ts';
import { CommandFailed } from './admin-client.ts';
import { UsageError } from './command.ts';

/** Returns what is said about a failure, and the code that decides the exit code. */
export const failureOf = (error: unknown): Failure => ({
  code: codeOf(error),
  detail: error instanceof Error ? error.message : String(error),
});

function codeOf(error: unknown): string {
  if (error instanceof UsageError) return 'invalid_request';
  if (error instanceof ConfigError) return 'invalid_settings';
  return (error instanceof CommandFailed ? error.code : undefined) ?? 'failed';
}

/**
 * Starts Switchboard to serve.
 * @throws CommandFailed if another Switchboard uses the data folder
 * @throws ConfigError, or the reason of `options.signal`, as `startSwitchboard` does
 */
export async function startOn(config: Config, options: StartOptions): Promise<Switchboard> {
  const { startSwitchboard } = await import('../app.ts');
  try {
    return await startSwitchboard(config, options);
  } catch (error) {
    if (!(error instanceof SocketInUse)) throw error;
    throw new CommandFailed(
      `Another Switchboard is running on ${config.dataDir}. Stop it, or set SWITCHBOARD_DATA_DIR.`,
    );
  }
}
