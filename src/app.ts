import type { Foundation, StartOptions, Switchboard } from './assembly.ts';
import { featuresOf, type Config } from './config/index.ts';
import { adoptLater } from './platform/adopt.ts';
import { packageVersion } from './config/package-version.ts';
import { controlSocketOf, hasDatabase } from './platform/database/data-folder.ts';
import { closeServer, deferredServer, listenExclusively } from './platform/server-lifecycle.ts';
import { openLog } from './platform/telemetry/log.ts';
import { reasonOf } from './platform/telemetry/throttled-log.ts';
import { systemClock } from './platform/time.ts';
import { makeDataDir, openConfigured, warnOfSettings } from './stores.ts';

export type { StartOptions, Switchboard } from './assembly.ts';

/**
 * Starts Switchboard: first the lock of the data folder, then the database, then all other parts (`assemble`). If a step fails,
 * everything opened before it is closed.
 * @throws SocketInUse if another process uses the data folder
 * @throws ConfigError for an invalid setting
 * @throws the reason of `options.signal`
 */
export async function startSwitchboard(config: Config, options: StartOptions = {}): Promise<Switchboard> {
  await using opened = new AsyncDisposableStack();
  const folder = await openFolder(config, options, opened);
  try {
    const { database = () => openConfigured(config, folder.log, options.signal) } = options;
    const opening = adoptLater(opened, database(), open => open.close());
    // Loading the rest of the program takes seconds on a busy machine, and keeps this process from answering Postgres in time.
    if (config.database.url !== undefined) await opening;
    // A new embedded database is created by a child process, and meanwhile this one loads the rest.
    const { assemble } = await import('./assembly.ts');
    const parts = await assemble(folder, opening);
    const running = opened.move();
    return { ...parts, [Symbol.asyncDispose]: () => running.disposeAsync() };
  } catch (error) {
    if (!options.signal?.aborted) throw error;
    folder.log.info({ reason: reasonOf(error) }, 'ended a start that was told to stop');
    throw options.signal.reason;
  }
}

/** Locks the data folder, unless another worker has. */
async function openFolder(
  config: Config,
  options: StartOptions,
  opened: AsyncDisposableStack,
): Promise<Foundation> {
  const { clock = systemClock, worker, log = openLog(config.log, worker?.number) } = options;
  const holdsFolder = worker?.isFirst !== false;
  const version = await packageVersion();
  await makeDataDir(config.dataDir);
  const control = deferredServer();
  opened.defer(() => closeServer(control.server));
  if (holdsFolder) await listenExclusively(control.server, controlSocketOf(config.dataDir));
  const isServing = options.listen !== false;
  if (isServing) {
    log.info({ version, dataDir: config.dataDir, ...featuresOf(config) }, 'starting');
    if (holdsFolder) warnOfSettings(config, log);
  }

  // Imported on demand, so that no OpenTelemetry package is loaded while tracing is off.
  const tracing =
    isServing && config.tracing
      ? (await import('./platform/telemetry/tracing-otel.ts')).openTracing({
          settings: config.tracing,
          version,
          log,
          clock,
        })
      : undefined;
  opened.defer(() => tracing?.close());
  const isNew = config.database.url === undefined && !hasDatabase(config.dataDir);
  return { config, options, opened, version, log, clock, control, holdsFolder, isServing, isNew, tracing };
}
