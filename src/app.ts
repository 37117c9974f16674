import { createHash } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { ConfigError, featuresOf, type Config } from './config/index.ts';
import { ApiKeys } from './core/access/api-keys.ts';
import { RateLimits } from './core/access/rate-limits.ts';
import { followCatalogue } from './core/catalogue/change-listener.ts';
import { CatalogueUnusable, openCatalogue } from './core/catalogue/shipped.ts';
import { ToolRefresh } from './core/catalogue/tools/refresh.ts';
import { Usage } from './core/catalogue/usage.ts';
import type { Core } from './core/core.ts';
import { AuditTrail } from './core/access/audit-trail.ts';
import type { AuditEntry } from './core/access/audit.ts';
import { createIdentity } from './core/identity/identity.ts';
import { Guard } from './platform/outbound/guard.ts';
import { createProxy, type ProxyLimits } from './core/proxy/proxy.ts';
import { beginningAnew } from './core/health/beginning-anew.ts';
import { HealthBoard } from './core/health/health-board.ts';
import { ProbeSchedule } from './core/health/probe-schedule.ts';
import { Probing } from './core/health/probing.ts';
import type { Turned } from './core/health/rounds.ts';
import { RegistrySync } from './core/registry/sync.ts';
import { ServedRegistry } from './core/registry/served.ts';
import { SyncSchedule } from './core/registry/schedule.ts';
import type { Embedder } from './core/search/embed/embedder.ts';
import { Results } from './core/results/results.ts';
import { openSearchIndex } from './core/search/index/open-index.ts';
import type { EmbeddingLimits } from './core/search/embed/openai/limits.ts';
import { createSearch } from './core/search/search.ts';
import { tracedSearch } from './core/search/traced-search.ts';
import { VectorPruning } from './core/search/index/vector-pruning.ts';
import { createAdminApp } from './api/admin/admin-app.ts';
import { createApp, type FaceLimits } from './api/http/app.ts';
import { systemClock, type Clock } from './platform/clock.ts';
import type { OpenDatabase } from './platform/database/database.ts';
import { listenExclusively } from './platform/exclusive-socket.ts';
import { closeServer, lateServer } from './platform/deferred-server.ts';
import { createLog, type Log } from './platform/telemetry/log.ts';
import { Metrics } from './platform/telemetry/metrics.ts';
import { packageVersion } from './platform/package-version.ts';
import { startTracing } from './platform/telemetry/tracing.ts';
import { createPublicServer, listen } from './api/http/listen.ts';
import { controlSocketOf, explainKeys, makeDataDir, openConfigured } from './core/open-database.ts';

const SHIPPED_VECTORS = fileURLToPath(new URL('../catalogue/vectors.bin', import.meta.url));

export interface StartOptions {
  /** False: only the control socket, for a command run while no server is. */
  readonly listen?: boolean;
  readonly log?: Log;
  readonly clock?: Clock;
  /** Tests that are not about meaning can do without the model, and those not about storage without files. */
  readonly embedder?: () => Promise<Embedder>;
  readonly database?: () => Promise<OpenDatabase>;
  /** Tests that would wait for a time-out. */
  readonly proxyLimits?: Partial<ProxyLimits>;
  readonly embeddingLimits?: Partial<EmbeddingLimits>;
  readonly faceLimits?: Partial<FaceLimits>;
}

export interface Switchboard extends AsyncDisposable {
  /** Where the public faces listen; undefined without them. */
  readonly url: string | undefined;
  /** The key made at the first start; it is shown here and never again. */
  readonly firstKey: string | undefined;
  /** Settles when every entry is searchable; rejects when that failed. */
  readonly indexed: Promise<void>;
}

/**
 * Puts Switchboard together and starts it: the lock first, then the database, the catalogue, the faces, and last the
 * index, which fills while the faces already answer (`/readyz` says when it is whole). Whatever fails, what was opened
 * before is closed again.
 * @throws SocketInUse when another process uses the data folder.
 */
export async function startSwitchboard(config: Config, options: StartOptions = {}): Promise<Switchboard> {
  const { clock = systemClock, log = createLog(config.logLevel) } = options;
  await using opened = new AsyncDisposableStack();
  const version = await packageVersion();

  await makeDataDir(config.dataDir);
  const control = lateServer();
  opened.defer(() => closeServer(control.server));
  await listenExclusively(control.server, controlSocketOf(config.dataDir));
  const isServing = options.listen !== false;
  if (isServing) log.info({ version, dataDir: config.dataDir, ...featuresOf(config) }, 'starting');

  const tracing = await startTracing(isServing ? config.tracing : undefined, { version, log, clock });
  opened.defer(() => tracing?.close());
  const database = await (options.database ?? (() => openConfigured(config, log)))();
  opened.defer(() => database.close());
  const { db, hold } = database;
  const metrics = new Metrics();
  if (database.pool) metrics.watch('switchboard_database_pool', database.pool);
  const databaseTrouble = () => database.trouble?.();
  metrics.watchDegraded('database', () => databaseTrouble() !== undefined);
  const shared = config.databaseUrl !== undefined;
  const apiKeys = new ApiKeys({ db, clock, log, metrics, environmentKey: config.access.apiKey, shared });
  opened.defer(() => apiKeys.close());
  await apiKeys.prepare();

  let url: string | undefined;
  const publicUrl = () => config.http.publicUrl ?? url ?? `http://127.0.0.1:${config.http.port}`;
  const guard = new Guard({ allowPrivateNetwork: config.proxy.allowPrivateNetwork, connectTimeoutMs: 5_000 });
  const identity = await createIdentity({
    db,
    log,
    metrics,
    clock,
    config: config.identity,
    dataDir: config.dataDir,
    guard,
    publicUrl,
  }).catch(explainKeys(config));
  opened.defer(() => identity.close());

  const allowHttp = config.proxy.allowPrivateNetwork;
  const catalogue = await openCatalogue({
    db,
    log,
    allowHttp,
    file: config.catalogueFile,
    // A command run while no server is must not swap the catalogue that a server was started with.
    onlyFirst: !isServing,
    shared,
  }).catch(rethrow(config));
  // What is being indexed when we stop fails as soon as the embedder is closed; only then may the database go.
  opened.defer(() => catalogue.settled());
  const usage = await Usage.load({ db, clock, log, shared });
  opened.defer(() => usage.close());

  const open = await openSearchIndex({
    db,
    log,
    clock,
    metrics,
    catalogue,
    shippedVectors: SHIPPED_VECTORS,
    meilisearch: config.meilisearch && { ...config.meilisearch, owner: processId(config) },
    embeddingApi: config.embedding,
    embeddingLimits: options.embeddingLimits,
    embedder: options.embedder,
  });
  opened.defer(() => open.close());
  const { index } = open;
  const board = await HealthBoard.load(db);
  const search = createSearch({
    catalogue,
    index,
    indexed: () => indexed,
    db,
    log,
    clock,
    metrics,
    use: id => usage.signals(id),
    health: board,
    onVerdicts: (serverId, tenantId, verdicts) => usage.recordVerdicts(serverId, tenantId, verdicts),
  });
  opened.defer(() => search.close());
  const toolRefresh = new ToolRefresh(catalogue, clock, log);
  const proxy = createProxy({
    catalogue,
    credentials: identity.credentials,
    sealing: identity.sealing,
    guard,
    log,
    clock,
    metrics,
    onOutcome: outcome => usage.record(outcome),
    onClaimedCall: call => search.recordCall(call),
    onSharedTools: (server, tools) => toolRefresh.offer(server, tools),
    limits: options.proxyLimits,
  });
  opened.defer(() => proxy.close());
  const results = new Results({ db, sealing: identity.sealing, clock, log, shared });
  opened.defer(() => results.close());

  const pruning = new VectorPruning({ db, log, index, catalogue });
  opened.defer(() => pruning.close());
  let starting: 'starting' | 'ready' = 'starting';
  let stopping = false;
  opened.defer(() => {
    stopping = true;
    log.info('stopping');
  });
  const indexed = catalogue
    .attachIndex(beginningAnew(board, catalogue, (...change) => index.prepare(...change)))
    .then(() => {
      starting = 'ready';
      log.info({ servers: index.size, embedder: index.embedderId }, 'ready');
    });
  indexed.catch((error: unknown) => {
    if (!stopping) log.error({ err: error }, 'the catalogue could not be indexed');
  });
  if (config.databaseUrl !== undefined) {
    const catchUp = async () => void (await Promise.all([catalogue.catchUp(), board.catchUp()]));
    opened.use(followCatalogue({ catchUp }, config.databaseUrl, log));
  }
  const rateLimits = await RateLimits.open(config.access.rateLimits, config.redisUrl, { log, metrics });
  opened.defer(() => rateLimits.close());
  const sync = new RegistrySync({ catalogue, db, hold, log, clock, guard, allowHttp, ...config.registry });
  opened.defer(() => sync.close());
  const schedule = new SyncSchedule({ sync, clock, log, ...config.registry });
  opened.defer(() => schedule.stop());
  const audit = new AuditTrail(db, log, metrics);
  const probing = new Probing({
    catalogue,
    board,
    db,
    hold,
    log,
    clock,
    metrics,
    guard,
    onTurned: (tx, turned) => audit.record({}, entryOf(turned), tx),
  });
  opened.defer(() => probing.close());
  const probes = new ProbeSchedule({ probing, clock, log, everyMs: config.registry.probeEveryMs });
  opened.defer(() => probes.stop());
  const core: Core = {
    apiKeys,
    audit,
    allowHttp,
    identity,
    rateLimits,
    catalogue,
    search: tracedSearch(search),
    proxy,
    results,
    probing,
    registrySync: sync,
    registry: new ServedRegistry(db, { publicUrl: config.http.publicUrl, url: publicUrl }),
    metrics,
    indexed,
    readiness: () => ({
      status: stopping ? 'stopping' : starting,
      degraded: [databaseTrouble(), index.degraded, rateLimits.degraded, probing.degraded].filter(
        one => one !== undefined,
      ),
    }),
  };

  control.serve(createAdminApp({ core, log }));
  let firstKey: string | undefined;
  if (isServing) {
    metrics.watchProcess();
    const app = createApp({
      core,
      config: config.http,
      readTool: config.mcp.readTool,
      isRegistryPublic: config.registry.isPublic,
      log,
      clock,
      version,
      tracing,
      limits: options.faceLimits,
    });
    const server = createPublicServer(app);
    opened.defer(() => closeServer(server));
    opened.defer(() => proxy.endIdle());
    url = await listen(server, config.http);
    identity.start();
    results.start();
    void indexed.then(
      () => {
        schedule.start();
        probes.start();
      },
      () => {},
    );
    // Last of all: a start that fails must not use up the one time the key is shown.
    if (config.access.apiKey === undefined) firstKey = await apiKeys.createFirst();
    // The first thing at the end: who asks hears of it while everything is still served.
    opened.defer(async () => {
      stopping = true;
      if (config.http.drainMs === 0) return;
      log.info({ drainMs: config.http.drainMs }, 'draining');
      await delay(config.http.drainMs);
    });
  }
  const running = opened.move();
  return { url, firstKey, indexed, [Symbol.asyncDispose]: () => running.disposeAsync() };
}

/** Of the one process that may use a data folder, and of its restarts. */
const processId = ({ dataDir }: Config): string =>
  createHash('sha256')
    .update(JSON.stringify([hostname(), dataDir]))
    .digest('hex')
    .slice(0, 12);

/** What probing has done to a server by itself. */
const entryOf = ({ id, deadSince }: Turned): AuditEntry =>
  deadSince === undefined
    ? { event: 'server_reactivated', outcome: 'ok', meta: { server: id } }
    : { event: 'server_deactivated', outcome: 'ok', meta: { server: id, dead_since: deadSince } };

const rethrow =
  (config: Config) =>
  (error: unknown): never => {
    if (!(error instanceof CatalogueUnusable) || config.catalogueFile === undefined) throw error;
    throw new ConfigError(`SWITCHBOARD_CATALOGUE: ${error.message}`);
  };
