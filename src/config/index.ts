import { isIP } from 'node:net';
import path from 'node:path';
import { z } from 'zod';
import { databaseEnvironment, readPostgresLimits } from './database.ts';
import { embeddingEnvironment, readEmbedding, type EmbeddingConfig } from './search.ts';
import { ConfigError } from './error.ts';
import { identityEnvironment, LOOPBACK_NAMES, readIdentity, type IdentityConfig } from './identity.ts';
import { readRegistry, registryEnvironment, type RegistryConfig } from './registry.ts';
import { readTracing, tracingEnvironment } from './telemetry.ts';
import { LOG_LEVELS, type LogLevel } from '../platform/telemetry/log.ts';
import type { PostgresLimits } from '../platform/database/postgres-limits.ts';
import type { TracingSettings } from '../platform/telemetry/tracing.ts';
import { inWords } from '../platform/zod-issues.ts';

export { ConfigError } from './error.ts';
export type { Kek } from './identity.ts';

/** The classes of endpoints that have a rate limit of their own, per API key. */
const RATE_CLASSES = ['search', 'proxy', 'refresh', 'sessions', 'revoke', 'admin'] as const;
export type RateClass = (typeof RATE_CLASSES)[number];

interface RateLimit {
  readonly calls: number;
  readonly seconds: number;
}

export interface Config {
  readonly http: {
    readonly host: string;
    /** 0 = any free port. */
    readonly port: number;
    /** Without a trailing slash. Absent: derived from the address listened on. */
    readonly publicUrl: string | undefined;
    /** Lower-case host names (without port) that the Host and Origin headers may carry; `*` = any. */
    readonly allowedHosts: readonly string[];
    /** Express's `trust proxy`: how many proxies stand in front, or their addresses. */
    readonly trustProxy: number | string | false;
    /** How long a process that is told to stop serves on while `/readyz` says that it stops: what balancers need to notice. */
    readonly drainMs: number;
  };
  readonly dataDir: string;
  /** Postgres to use in place of the embedded database. It holds a password: it must reach no log and no error. */
  readonly databaseUrl: string | undefined;
  /** Of that Postgres. */
  readonly databaseLimits: PostgresLimits;
  /** Redis that counts rate limits for all processes. It holds a password, too. */
  readonly redisUrl: string | undefined;
  readonly logLevel: LogLevel;
  readonly catalogueFile: string | undefined;
  /** The search engine to use in place of the embedded index. */
  readonly meilisearch: { readonly url: string; readonly apiKey: string | undefined } | undefined;
  readonly proxy: { readonly allowPrivateNetwork: boolean };
  /** Whether `/mcp` offers `read_remote_tool`. */
  readonly mcp: { readonly readTool: boolean };
  readonly access: {
    /** A key from the environment, accepted for tenant `local` with all scopes. */
    readonly apiKey: string | undefined;
    /** `off` switches limiting off. */
    readonly rateLimits: Readonly<Record<RateClass, RateLimit>> | 'off';
  };
  readonly identity: IdentityConfig;
  readonly registry: RegistryConfig;
  /** Absent: the local model embeds. */
  readonly embedding: EmbeddingConfig | undefined;
  /** Absent: no traces. */
  readonly tracing: TracingSettings | undefined;
}

const DEFAULT_RATE_LIMITS: Record<RateClass, RateLimit> = {
  search: { calls: 300, seconds: 60 },
  proxy: { calls: 600, seconds: 60 },
  refresh: { calls: 600, seconds: 60 },
  sessions: { calls: 120, seconds: 60 },
  revoke: { calls: 60, seconds: 60 },
  admin: { calls: 120, seconds: 60 },
};

const environmentSchema = z.object({
  PORT: z
    .string()
    .regex(/^\d{1,5}$/, 'must be a port number')
    .transform(Number)
    .refine(port => port <= 65_535, 'must be a port number')
    .default(8080),
  HOST: z.string().min(1).default('127.0.0.1'),
  PUBLIC_URL: z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' }).optional(),
  REDIS_URL: z
    .url({ protocol: /^rediss?$/, error: 'must be a redis:// or rediss:// URL' })
    .regex(/^([^%]|%[\da-f]{2})*$/i, 'must write a % that is not an escape as %25')
    .refine(
      url => !URL.canParse(url) || /^(\/\d*)?$/.test(new URL(url).pathname),
      'must end with the host, or with / and the number of the database',
    )
    .optional(),
  MEILISEARCH_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    .refine(
      url => !URL.canParse(url) || (new URL(url).username === '' && new URL(url).password === ''),
      'must not hold a user or password: a key goes into MEILISEARCH_API_KEY',
    )
    .optional(),
  MEILISEARCH_API_KEY: z
    .string()
    .regex(/^[\x21-\x7e]+$/, 'must be visible ASCII without spaces')
    .optional(),
  LOG_LEVEL: z.enum(LOG_LEVELS).default('info'),
  SWITCHBOARD_DATA_DIR: z.string().min(1).default('./.switchboard'),
  SWITCHBOARD_CATALOGUE: z.string().min(1).optional(),
  SWITCHBOARD_API_KEY: z
    .string()
    .min(32, 'must have at least 32 characters')
    .regex(/^[\x21-\x7e]+$/, 'must be visible ASCII without spaces')
    .optional(),
  SWITCHBOARD_RATE_LIMIT: z.string().min(1).optional(),
  SWITCHBOARD_ALLOW_PRIVATE_NETWORK: z.enum(['true', 'false'], 'must be true or false').default('false'),
  SWITCHBOARD_READ_TOOL: z.enum(['true', 'false'], 'must be true or false').default('false'),
  SWITCHBOARD_TRUST_PROXY: z.string().min(1).optional(),
  SWITCHBOARD_ALLOWED_HOSTS: z.string().min(1).optional(),
  SWITCHBOARD_DRAIN_MS: z
    .string()
    .regex(/^([0-9]{1,5}|[12][0-9]{5}|300000)$/, 'must be a whole number of milliseconds from 0 to 300000')
    .transform(Number)
    .default(0),
  NODE_ENV: z.string().optional(),
  ...databaseEnvironment,
  ...identityEnvironment,
  ...embeddingEnvironment,
  ...registryEnvironment,
  ...tracingEnvironment,
});
type Settings = z.output<typeof environmentSchema>;

/**
 * The only reader of the environment. An empty variable counts as absent.
 * @throws ConfigError for a value that cannot be used, or for settings that contradict each other.
 */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const present = Object.fromEntries(
    Object.entries(env).filter(([, value]) => value !== undefined && value !== ''),
  );
  const parsed = environmentSchema.safeParse(present);
  if (!parsed.success) throw new ConfigError(inWords(parsed.error.issues.slice(0, 1)));
  const settings = parsed.data;
  const publicUrl = settings.PUBLIC_URL?.replace(/\/+$/, '');
  return {
    http: {
      host: settings.HOST,
      port: settings.PORT,
      publicUrl,
      allowedHosts: allowedHosts(settings.SWITCHBOARD_ALLOWED_HOSTS, settings.HOST, publicUrl),
      trustProxy: trustProxy(settings.SWITCHBOARD_TRUST_PROXY),
      drainMs: settings.SWITCHBOARD_DRAIN_MS,
    },
    dataDir: path.resolve(settings.SWITCHBOARD_DATA_DIR),
    databaseUrl: settings.DATABASE_URL,
    databaseLimits: readPostgresLimits(settings),
    redisUrl: settings.REDIS_URL,
    logLevel: settings.LOG_LEVEL,
    catalogueFile: settings.SWITCHBOARD_CATALOGUE,
    meilisearch: meilisearch(settings),
    proxy: { allowPrivateNetwork: settings.SWITCHBOARD_ALLOW_PRIVATE_NETWORK === 'true' },
    mcp: { readTool: settings.SWITCHBOARD_READ_TOOL === 'true' },
    access: { apiKey: settings.SWITCHBOARD_API_KEY, rateLimits: rateLimits(settings.SWITCHBOARD_RATE_LIMIT) },
    identity: readIdentity(settings, {
      production: whyProduction(settings),
      publicUrl,
      allowHttp: settings.SWITCHBOARD_ALLOW_PRIVATE_NETWORK === 'true',
    }),
    embedding: readEmbedding(settings),
    registry: readRegistry(settings),
    tracing: readTracing(settings),
  };
}

function meilisearch({ MEILISEARCH_URL: url, MEILISEARCH_API_KEY: apiKey }: Settings): Config['meilisearch'] {
  if (url !== undefined) return { url, apiKey };
  if (apiKey === undefined) return undefined;
  throw new ConfigError('MEILISEARCH_API_KEY: must be set together with MEILISEARCH_URL');
}

/** What shows that others depend on this installation; undefined where it may be a trial on one machine. */
function whyProduction({ DATABASE_URL, NODE_ENV }: Settings): string | undefined {
  if (DATABASE_URL !== undefined) return 'DATABASE_URL is set';
  return NODE_ENV === 'production' ? 'NODE_ENV is production' : undefined;
}

function allowedHosts(
  listed: string | undefined,
  host: string,
  publicUrl: string | undefined,
): readonly string[] {
  if (listed !== undefined) {
    const names = listed.split(',').map(name => name.trim().toLowerCase());
    if (names.includes(''))
      throw new ConfigError('SWITCHBOARD_ALLOWED_HOSTS: must be host names separated by commas, or *');
    return names;
  }
  const names = [...LOOPBACK_NAMES];
  if (publicUrl !== undefined) names.push(new URL(publicUrl).hostname);
  else if (!isLoopback(host)) {
    throw new ConfigError(
      `HOST: ${host} is reachable from other machines; set PUBLIC_URL or SWITCHBOARD_ALLOWED_HOSTS to the names it is called by`,
    );
  }
  return names;
}

const isLoopback = (host: string) =>
  host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));

function trustProxy(value: string | undefined): number | string | false {
  if (value === undefined || value === 'false') return false;
  if (/^\d+$/.test(value)) return Number(value);
  if (value === 'true') {
    throw new ConfigError(
      'SWITCHBOARD_TRUST_PROXY: "true" would trust anyone; give the number of proxies or their addresses',
    );
  }
  const isAddress = (part: string) =>
    ['loopback', 'linklocal', 'uniquelocal'].includes(part) || isIP(part.replace(/\/\d{1,3}$/, '')) !== 0;
  if (!value.split(',').every(part => isAddress(part.trim()))) {
    throw new ConfigError(
      `SWITCHBOARD_TRUST_PROXY: "${value}" must be the number of proxies in front, or their addresses separated by commas`,
    );
  }
  return value;
}

function rateLimits(value: string | undefined): Config['access']['rateLimits'] {
  if (value === 'off') return 'off';
  const limits = { ...DEFAULT_RATE_LIMITS };
  for (const part of value?.split(',') ?? []) {
    const match = /^\s*([a-z]+)=([1-9]\d{0,8})\/([1-9]\d{0,6})\s*$/.exec(part);
    const name = RATE_CLASSES.find(known => known === match?.[1]);
    if (!match || !name) {
      throw new ConfigError(
        `SWITCHBOARD_RATE_LIMIT: "${part.trim()}" must be off or NAME=CALLS/SECONDS with NAME one of ${RATE_CLASSES.join(', ')}`,
      );
    }
    limits[name] = { calls: Number(match[2]), seconds: Number(match[3]) };
  }
  return limits;
}

/** What is used for what, for the log: no address and no secret. */
export const featuresOf = (config: Config) => ({
  database: config.databaseUrl === undefined ? 'embedded' : 'Postgres',
  search: config.meilisearch === undefined ? 'embedded' : 'Meilisearch',
  embedding: config.embedding === undefined ? 'local model' : 'API',
  rateLimits: config.redisUrl === undefined ? 'memory' : 'Redis',
  registries: config.registry.sources.length,
  probeEveryHours: config.registry.probeEveryMs / 3_600_000,
  tracing: config.tracing !== undefined,
});
