import type { EmbeddingApiConfig, EmbeddingLimits } from './core/search/embed/openai-api.ts';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { ConfigError, type Config } from './config/index.ts';
import { ApiKeys } from './core/access/api-keys.ts';
import { ConsoleSessions } from './core/access/console-sessions.ts';
import { Refusals } from './core/access/refusals.ts';
import { RateLimits } from './core/access/rate-limits.ts';
import { followChanges } from './core/catalogue/change-feed.ts';
import { CatalogueUnusable, InitialCatalogue, openCatalogue } from './core/catalogue/shipped.ts';
import { OpenServers } from './core/catalogue/open-servers.ts';
import { ToolRefresh } from './core/catalogue/tools/refresh.ts';
import { Usage } from './core/catalogue/usage.ts';
import type { Core } from './core/core.ts';
import { Audit } from './core/access/audit.ts';
import { createIdentity } from './core/identity/identity.ts';
import { ServerConnections } from './core/identity/connections/server-connections.ts';
import { Guard } from './platform/outbound/guard.ts';
import { createProxy, type ProxyLimits } from './core/proxy/proxy.ts';
import { HealthStore } from './core/health/store.ts';
import { auditEntryOf, HealthSweep } from './core/health/sweep.ts';
import { RecentUse } from './core/recent-use.ts';
import { RegistrySync, SyncSchedule } from './core/registry/sync.ts';
import { ServedRegistry } from './core/registry/served.ts';
import type { Embedder } from './core/search/embed/embedder.ts';
import { Results } from './core/results/results.ts';
import { openLocalEmbedder, openSearchIndex, type LocalEmbedder } from './core/search/index/open-index.ts';
import { createSearch } from './core/search/search.ts';
import { controlSocketListener } from './api/admin/table.ts';
import { createApp, type FaceLimits, CannotListen, createPublicServer, listen } from './api/http/app.ts';
import type { Clock } from './platform/time.ts';
import type { OpenDatabase } from './platform/database/database.ts';
import { adoptLater } from './platform/adopt.ts';
import { closeServer, type DeferredServer } from './platform/server-lifecycle.ts';
import type { Log } from './platform/telemetry/log.ts';
import type { Tracing } from './platform/telemetry/tracing.ts';
import type { WorkerSeat } from './platform/workers/seat.ts';
import { Metrics } from './core/metrics.ts';
import { explainKeys, warnOfConnections } from './stores.ts';

const SHIPPED_VECTORS = fileURLToPath(new URL('../catalogue/vectors.bin', import.meta.url));

export interface StartOptions {
  /** False: opens only the control socket, for a command that found no running server. */
  readonly listen?: boolean;
  /** Stops the start before its next step, and before the first key is created. */
  readonly signal?: AbortSignal;
  /** This process is one of several workers that serve on one port. */
  readonly worker?: WorkerSeat;
  readonly log?: Log;
  readonly clock?: Clock;
  /** For tests that need no model or no files. */
  readonly embedder?: () => Promise<Embedder>;
  readonly database?: () => Promise<OpenDatabase>;
  /** For tests that would otherwise wait for a timeout. */
  readonly proxyLimits?: Partial<ProxyLimits>;
  readonly embeddingLimits?: Partial<EmbeddingLimits>;
  readonly faceLimits?: Partial<FaceLimits>;
}

export interface Switchboard extends AsyncDisposable {
  /** The address of the public API. Undefined if it was not opened. */
  readonly url: string | undefined;
  /** The key created at the first start. It cannot be read again later. A worker creates none. */
  readonly firstKey: string | undefined;
  /** Creates the first key if there is none and the settings name none. */
  createFirstKey(): Promise<string | undefined>;
  /** The number of servers in the catalogue. */
  readonly servers: number;
  /** Resolves when every entry is searchable; rejects if indexing failed. */
  readonly indexed: Promise<void>;
}

/** The base of all parts, open before the database: the data folder is locked, by this process or another worker. */
export interface Foundation {
  readonly config: Config;
  readonly options: StartOptions;
  /** Closes everything that was opened, in reverse order. */
  readonly opened: AsyncDisposableStack;
  readonly version: string;
  readonly log: Log;
  readonly clock: Clock;
  /** The server of the control socket. */
  readonly control: DeferredServer;
  readonly holdsFolder: boolean;
  readonly isServing: boolean;
  /** True if the database is being created, so that its catalogue is still empty. */
  readonly isNew: boolean;
  readonly tracing: Tracing | undefined;
}

/**
 * Opens all parts and the API, some parts before the database is open. The search index fills in the background; `/readyz` reports
 * when it is complete.
 * @throws ConfigError for an invalid setting
 * @throws the reason of `options.signal`
 */
export async function assemble(
  foundation: Foundation,
  opening: Promise<OpenDatabase>,
): Promise<Omit<Switchboard, keyof AsyncDisposable>> {
  const { config, options } = foundation;
  const embedding = config.search.embedding ?? openEmbedder(foundation);
  const initial = foundation.isNew ? readCatalogue(foundation) : undefined;
  const base = baseOf(foundation, await opening);
  options.signal?.throwIfAborted();
  const access = await openIdentity(base);
  options.signal?.throwIfAborted();
  const search = await openSearch(base, access, { embedding, initial });
  options.signal?.throwIfAborted();
  const proxy = openProxy(base, access, search);
  const indexed = buildIndex(base, search);
  const upkeep = await openUpkeep(base, access, search, proxy);
  const core = coreOf({ base, access, search, proxy, upkeep, indexed });
  base.control.serve(controlSocketListener({ core, log: base.log, clock: base.clock }));
  const firstKey = base.isServing ? await openHttp(base, core, upkeep) : undefined;
  return {
    url: base.life.url,
    firstKey,
    createFirstKey: () => createFirstKey(config, access),
    servers: search.catalogue.activeCount,
    indexed,
  };
}

/** Changes while the process runs. */
interface Life {
  status: 'starting' | 'ready' | 'stopping';
  /** The address of the public listener. */
  url: string | undefined;
}

type Base = ReturnType<typeof baseOf>;
type Access = Awaited<ReturnType<typeof openIdentity>>;
type SearchParts = Awaited<ReturnType<typeof openSearch>>;
type ProxyParts = ReturnType<typeof openProxy>;
type Upkeep = Awaited<ReturnType<typeof openUpkeep>>;

/** The things that are opened or read while the database is being created or opened. */
interface Ahead {
  readonly embedding: Promise<LocalEmbedder> | EmbeddingApiConfig;
  readonly initial: Promise<InitialCatalogue> | undefined;
}

/** Reads the catalogue of a new database. */
function readCatalogue({ config }: Foundation): Promise<InitialCatalogue> {
  const { allowPrivateNetwork: allowHttp } = config.proxy;
  const reading = InitialCatalogue.read(config.catalogueFile, { allowHttp });
  // Whoever opens the catalogue is told of a failure.
  reading.then(initial => initial.entries).catch(() => {});
  return reading;
}

/** Starts to open the local embedder. */
function openEmbedder({ opened, options, log }: Foundation): Promise<LocalEmbedder> {
  const opening = options.embedder
    ? options.embedder().then(embedder => ({ embedder }))
    : openLocalEmbedder(log);
  return adoptLater(opened, opening, ({ embedder }) => embedder.close());
}

/** Adds what all parts need. */
function baseOf(foundation: Foundation, database: OpenDatabase) {
  const { config, options, log } = foundation;
  const metrics = openMetrics(database, options.worker);
  const life: Life = { status: 'starting', url: undefined };
  const { allowPrivateNetwork } = config.proxy;
  return {
    ...foundation,
    metrics,
    db: database.db,
    hold: database.hold,
    audit: new Audit(database.db, log, metrics),
    databaseTrouble: () => database.trouble?.(),
    /** True if other processes may use the same database. */
    shared: config.database.url !== undefined,
    guard: new Guard({ allowPrivateNetwork, connectTimeoutMs: 5_000, log }),
    allowHttp: allowPrivateNetwork,
    life,
    publicUrl: () => config.http.publicUrl ?? life.url ?? `http://127.0.0.1:${config.http.port}`,
  };
}

function openMetrics(database: OpenDatabase, worker: WorkerSeat | undefined): Metrics {
  const metrics = new Metrics();
  if (worker) {
    worker.offerMetrics(() => metrics.json());
    metrics.showAllWorkers(() => worker.allMetrics());
  }
  if (database.pool) metrics.watch('switchboard_database_pool', database.pool);
  metrics.watchDegraded('database', () => database.trouble?.() !== undefined);
  return metrics;
}

async function openIdentity({ config, opened, shared, guard, publicUrl, ...base }: Base) {
  const { db, log, metrics, audit, clock } = base;
  const environmentKey = config.access.apiKey;
  const apiKeys = new ApiKeys({ db, clock, log, metrics, audit, environmentKey, shared });
  opened.defer(() => apiKeys.close());
  await apiKeys.prepare();
  const { identity: settings, dataDir } = config;
  const parts = { db, log, metrics, audit, apiKeys, clock, config: settings, dataDir, guard, publicUrl };
  const { signIn } = config.mcp;
  const identity = await createIdentity({ ...parts, signIn }).catch(explainKeys(config));
  opened.defer(() => identity.close());
  const consoleSessions = new ConsoleSessions({ db, audit, environmentKey, publicUrl });
  const refusals = new Refusals({ audit, metrics, clock, log });
  return { apiKeys, identity, consoleSessions, refusals };
}

async function openSearch(
  { config, options, opened, shared, isServing, allowHttp, ...base }: Base,
  { identity }: Access,
  { embedding, initial }: Ahead,
) {
  const { db, log, clock, metrics } = base;
  const catalogue = await openCatalogue({
    db,
    log,
    allowHttp,
    file: config.catalogueFile,
    initial,
    // A command that runs without a server must not replace the catalogue that a server was started with.
    onlyFirst: !isServing,
    shared,
  }).catch(explainCatalogue(config));
  // Indexing fails once the embedder is closed. The database must stay open until indexing has stopped.
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
    meilisearch: config.search.meilisearch,
    embedding,
    embeddingLimits: options.embeddingLimits,
  });
  opened.defer(() => open.close());
  const { index, degraded, reindex } = open;
  const healthStore = await HealthStore.load(db);
  catalogue.onReinstated(ids => healthStore.forgetFailures(ids));
  const filled = Promise.withResolvers<void>();
  const search = createSearch({
    catalogue,
    index,
    indexed: () => filled.promise,
    db,
    log,
    clock,
    metrics,
    use: id => usage.signals(id),
    health: healthStore,
    accessFor: identity.accessFor,
    onVerdicts: (serverId, tenantId, verdicts) => usage.recordVerdicts(serverId, tenantId, verdicts),
  });
  opened.defer(() => search.close());
  return { catalogue, usage, index, degraded, reindex, healthStore, search, filled };
}

function openProxy(
  { config, opened, db, log, clock, metrics, guard, shared, options }: Base,
  { identity }: Access,
  { catalogue, usage, search }: SearchParts,
) {
  const toolRefresh = new ToolRefresh({ catalogue, clock, log });
  const { credentials, sealing, calls } = identity;
  const openServers = new OpenServers(catalogue, log, clock);
  const { maxStreams, maxStreamsPerKey } = config.proxy;
  const proxy = createProxy({
    catalogue,
    credentials,
    sealing,
    guard,
    log,
    clock,
    metrics,
    onOutcome: outcome => usage.record(outcome),
    onClaimedCall: call => search.recordCall(call),
    onUserCall: call => calls.record(call),
    onOpenResult: (server, answer) => void openServers.learn(server, answer),
    onSharedTools: (server, tools) => toolRefresh.offer(server, tools),
    limits: { maxStreams, maxStreamsPerKey, ...options.proxyLimits },
  });
  opened.defer(() => proxy.close());
  const serverConnections = new ServerConnections({
    ...identity,
    catalogue,
    inspect: (server, signal, credential) => proxy.inspect(server, signal, credential),
  });
  identity.signIns.findServers(id => catalogue.get(id));
  identity.manage.findServers(catalogue, search);
  identity.authorization.onLearned(({ id, remoteUrl }, learned) =>
    catalogue.learnAccess(id, remoteUrl, learned),
  );
  const results = new Results({ db, sealing, clock, log, shared });
  opened.defer(() => results.close());
  return { proxy, results, serverConnections };
}

/** Fills the search index in the background and keeps it up to date. Settles when every entry is searchable or indexing failed. */
function buildIndex({ config, opened, log, life }: Base, parts: SearchParts): Promise<void> {
  const { catalogue, index, healthStore, filled } = parts;
  opened.defer(() => void (life.status = 'stopping'));
  filled.resolve(
    catalogue
      .attachIndex((...change) => index.prepare(...change))
      .then(() => {
        if (life.status === 'stopping') return;
        life.status = 'ready';
        log.info({ servers: index.size, embedder: index.embedderId }, 'ready');
      }),
  );
  filled.promise.catch((error: unknown) => {
    if (life.status !== 'stopping') log.error({ err: error }, 'failed to index the catalogue');
  });
  if (config.database.url !== undefined) {
    const catchUp = () => Promise.all([catalogue.catchUp(), healthStore.catchUp()]);
    opened.use(followChanges(catchUp, config.database.url, log));
  }
  return filled.promise;
}

/** Opens the background parts: rate limits, registry syncs and health checks. */
async function openUpkeep(
  { config, opened, allowHttp, ...base }: Base,
  { identity }: Access,
  { catalogue, healthStore }: SearchParts,
  { proxy }: ProxyParts,
) {
  const { db, hold, log, clock, metrics, audit, guard } = base;
  const { registry, access } = config;
  const parts = { log, metrics, lease: base.options.worker?.lease };
  const rateLimits = await RateLimits.open(access.rateLimits, access.redisUrl, parts);
  opened.defer(() => rateLimits.close());
  const sync = new RegistrySync({ catalogue, db, hold, log, clock, guard, allowHttp, ...registry });
  opened.defer(() => sync.close());
  const syncs = new SyncSchedule({ sync, clock, log, ...registry });
  opened.defer(() => syncs.stop());
  const health = new HealthSweep({
    catalogue,
    store: healthStore,
    db,
    hold,
    log,
    clock,
    metrics,
    inspect: (server, signal) => proxy.inspect(server, signal),
    onRefused: (server, { challenge }) => identity.authorization.learn(server, challenge),
    onStatusChange: (tx, change) => audit.record({}, auditEntryOf(change), tx),
    everyMs: registry.probeEveryMs,
  });
  opened.defer(() => health.close());
  const startSchedules = () => {
    syncs.start();
    health.start();
  };
  return { rateLimits, sync, health, startSchedules };
}

function coreOf(parts: {
  base: Base;
  access: Access;
  search: SearchParts;
  proxy: ProxyParts;
  upkeep: Upkeep;
  indexed: Promise<void>;
}): Core {
  const { base, access, search, proxy, upkeep, indexed } = parts;
  const { config, db, clock, metrics, allowHttp, life, publicUrl, databaseTrouble } = base;
  const { rateLimits, health, sync } = upkeep;
  const troubles = () => [databaseTrouble(), search.degraded(), rateLimits.degraded, health.degraded];
  return {
    ...access,
    ...proxy,
    audit: base.audit,
    allowHttp,
    rateLimits,
    catalogue: search.catalogue,
    search: search.search,
    reindex: search.reindex,
    health,
    registrySync: sync,
    registry: new ServedRegistry(db, { publicUrl: config.http.publicUrl, url: publicUrl }),
    metrics,
    recentUse: new RecentUse(db, clock, async () => {
      await Promise.all([search.usage.flush(), access.apiKeys.use.flush()]);
    }),
    version: base.version,
    indexed,
    readiness: () => ({ status: life.status, degraded: troubles().filter(one => one !== undefined) }),
  };
}

/** Listens and starts all background work. Returns the key created at the first start. */
async function openHttp(base: Base, core: Core, { startSchedules }: Upkeep): Promise<string | undefined> {
  const { config, options, opened, log, clock, version, tracing, metrics, life } = base;
  if (base.holdsFolder) await warnOfConnections(config, base.db, log);
  const { identity, proxy, results, indexed } = core;
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
    worker: options.worker,
  });
  const server = createPublicServer(app, options.faceLimits);
  opened.defer(() => closeServer(server));
  opened.defer(() => proxy.endIdle());
  life.url = await listen(server, config.http).catch(explainAddress);
  identity.start();
  results.start();
  void indexed.then(startSchedules, () => {});
  options.signal?.throwIfAborted();
  // Last, because a failing start must not use up the only time the key is shown.
  const firstKey = options.worker ? undefined : await createFirstKey(config, core);
  // First on shutdown: `/readyz` reports it while requests are still served.
  opened.defer(async () => {
    life.status = 'stopping';
    log.info('stopping: running calls may finish; a second signal ends them');
    if (config.http.drainMs === 0) return;
    log.info({ drainMs: config.http.drainMs }, 'draining');
    await delay(config.http.drainMs, undefined, { signal: options.worker?.orphaned }).catch(() => {});
  });
  return firstKey;
}

const createFirstKey = async ({ access }: Config, { apiKeys }: Pick<Core, 'apiKeys'>) =>
  access.apiKey === undefined ? apiKeys.createFirst() : undefined;

const explainAddress = (error: unknown): never => {
  throw error instanceof CannotListen ? new ConfigError(error.message) : error;
};

const explainCatalogue =
  (config: Config) =>
  (error: unknown): never => {
    if (!(error instanceof CatalogueUnusable) || config.catalogueFile === undefined) throw error;
    throw new ConfigError(`SWITCHBOARD_CATALOGUE: ${error.message}`);
  };
