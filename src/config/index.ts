import path from 'node:path';
import { z } from 'zod';
import { nearest } from '../platform/closest-names.ts';
import { inWords } from '../platform/zod-issues.ts';
import type { LogSettings } from '../platform/telemetry/log.ts';
import type { TracingSettings } from '../platform/telemetry/tracing.ts';
import {
  callSettings,
  catalogueSettings,
  readEmbedding,
  readMeilisearch,
  readRegistry,
  searchSettings,
  type EmbeddingConfig,
  type MeilisearchConfig,
  type RegistryConfig,
} from './catalogue.ts';
import { databaseSettings, readDatabase, type DatabaseConfig } from './database.ts';
import {
  accessSettings,
  httpSettings,
  readAccess,
  readHttp,
  type AccessConfig,
  type HttpConfig,
} from './http.ts';
import { identitySettings, readIdentity, type IdentityConfig } from './identity.ts';
import { oauthSettings } from './oauth.ts';
import { ConfigError, setting, someText } from './setting.ts';
import { readSignIn, signInSettings, type SignInConfig } from './sign-in.ts';
import { logSettings, readLog, readTracing, tracingSettings } from './telemetry.ts';

export { ConfigError } from './setting.ts';
export type { RateClass } from './http.ts';
export type { Kek, ProviderSettings } from './identity.ts';
export type { OAuthConfig, RegisteredClient } from './oauth.ts';
export type { ExternalIssuer } from './sign-in.ts';

/** All settings, validated. */
export interface Config {
  readonly http: HttpConfig;
  readonly access: AccessConfig;
  readonly dataDir: string;
  readonly database: DatabaseConfig;
  readonly log: LogSettings;
  /** Undefined: the shipped catalogue. */
  readonly catalogueFile: string | undefined;
  readonly registry: RegistryConfig;
  readonly search: {
    /** Undefined: the embedded index finds candidates. */
    readonly meilisearch: MeilisearchConfig | undefined;
    /** Undefined: the local model embeds. */
    readonly embedding: EmbeddingConfig | undefined;
  };
  readonly proxy: {
    readonly allowPrivateNetwork: boolean;
    /** The maximum number of open event streams, of all keys and of one. */
    readonly maxStreams: number;
    readonly maxStreamsPerKey: number;
  };
  readonly mcp: {
    /** Adds `read_remote_tool` to `/mcp`. */
    readonly readTool: boolean;
    /** Undefined: clients must send a key. */
    readonly signIn: SignInConfig | undefined;
  };
  readonly identity: IdentityConfig;
  /** Undefined: tracing is off. */
  readonly tracing: TracingSettings | undefined;
  readonly unknownVariables: readonly UnknownVariable[];
}

/** A `SWITCHBOARD_*` variable that no setting reads. */
interface UnknownVariable {
  readonly name: string;
  /** The most similar known name, if any is similar. */
  readonly closest?: string | undefined;
}

const processSettings = {
  SWITCHBOARD_DATA_DIR: setting(
    someText.default('./.switchboard'),
    'Folder for the embedded database and the control socket.',
  ),
  NODE_ENV: setting(
    z.string().optional(),
    '`production` requires `SWITCHBOARD_KEKS` and refuses a vault key in the data folder.',
  ),
};

/** All settings by subject, in the order in which docs/configuration.md shows them. */
export const SETTINGS = [
  { title: 'Server', settings: { ...httpSettings, ...processSettings, ...logSettings } },
  { title: 'Access', settings: accessSettings },
  { title: 'Catalogue', settings: catalogueSettings },
  { title: 'Calls', settings: callSettings },
  { title: 'Database', settings: databaseSettings },
  { title: 'Search', settings: searchSettings },
  { title: 'Identity', settings: { ...identitySettings, ...oauthSettings, ...signInSettings } },
  { title: 'Tracing', settings: tracingSettings },
] as const;

type Intersection<Union> = (Union extends unknown ? (one: Union) => void : never) extends (
  all: infer All,
) => void
  ? All
  : never;
type AllSettings = Intersection<(typeof SETTINGS)[number]['settings']>;

const environmentSchema = z.object(
  Object.assign({}, ...SETTINGS.map(({ settings }) => settings)) as AllSettings,
);

/**
 * Reads all settings. Nothing else in the program reads the environment. An empty variable counts as absent.
 * @throws ConfigError for an invalid value, or for contradictory settings
 * @example
 * const config = readConfig({ PORT: '9000' });
 * config.http.port; // 9000
 */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const present = Object.fromEntries(
    Object.entries(env).filter(([, value]) => value !== undefined && value !== ''),
  );
  const parsed = environmentSchema.safeParse(present);
  if (!parsed.success) throw new ConfigError(inWords(parsed.error.issues.slice(0, 1)));
  const settings = parsed.data;
  const http = readHttp(settings, { hasPostgres: settings.DATABASE_URL !== undefined });
  const allowPrivateNetwork = settings.SWITCHBOARD_ALLOW_PRIVATE_NETWORK;
  return {
    http,
    access: readAccess(settings),
    dataDir: path.resolve(settings.SWITCHBOARD_DATA_DIR),
    database: readDatabase(settings),
    log: readLog(settings),
    catalogueFile: settings.SWITCHBOARD_CATALOGUE,
    registry: readRegistry(settings),
    search: { meilisearch: readMeilisearch(settings), embedding: readEmbedding(settings) },
    proxy: {
      allowPrivateNetwork,
      maxStreams: settings.SWITCHBOARD_MAX_STREAMS,
      maxStreamsPerKey: settings.SWITCHBOARD_MAX_STREAMS_PER_KEY,
    },
    mcp: {
      readTool: settings.SWITCHBOARD_READ_TOOL,
      signIn: readSignIn(settings, { publicUrl: http.publicUrl, allowHttp: allowPrivateNetwork }),
    },
    identity: readIdentity(settings, {
      production: whyProduction(settings),
      publicUrl: http.publicUrl,
      allowHttp: allowPrivateNetwork,
    }),
    tracing: readTracing(settings),
    unknownVariables: unknownVariables(Object.keys(present)),
  };
}

/** Kubernetes sets SWITCHBOARD_PORT… and SWITCHBOARD_SERVICE_… in every pod if a service has this name. */
const OURS = /^SWITCHBOARD_(?!PORT|SERVICE_|TEST_)/;

function unknownVariables(names: readonly string[]): UnknownVariable[] {
  const known = Object.keys(environmentSchema.shape);
  // The shared prefix would make all names look similar.
  const byShortName = new Map(known.map(name => [name.replace(OURS, ''), name]));
  return names
    .filter(name => OURS.test(name) && !known.includes(name))
    .map(name => ({
      name,
      closest: byShortName.get(nearest(name.replace(OURS, ''), byShortName.keys(), 1)[0] ?? ''),
    }));
}

/** Returns why this is a production installation; undefined if it may be a local trial. */
function whyProduction({ DATABASE_URL, NODE_ENV }: z.output<typeof environmentSchema>): string | undefined {
  if (DATABASE_URL !== undefined) return 'DATABASE_URL is set';
  return NODE_ENV === 'production' ? 'NODE_ENV is production' : undefined;
}

/** Returns the selected components for the log, without addresses or secrets. */
export const featuresOf = ({ database, search, access, registry, tracing }: Config) => ({
  database: database.url === undefined ? 'embedded' : 'Postgres',
  search: search.meilisearch === undefined ? 'embedded' : 'Meilisearch',
  embedding: search.embedding === undefined ? 'local model' : 'API',
  rateLimits: access.redisUrl === undefined ? 'memory' : 'Redis',
  registries: registry.sources.length,
  probeEveryHours: registry.probeEveryMs / 3_600_000,
  tracing: tracing !== undefined,
});
