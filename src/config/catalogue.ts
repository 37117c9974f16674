import { z } from 'zod';
import {
  ConfigError,
  flag,
  hasCredentials,
  httpUrl,
  setting,
  someText,
  visibleAscii,
  wholeNumber,
} from './setting.ts';

const DEFAULT_BASE_URL = 'https://api.openai.com/v1';
const DEFAULT_MODEL = 'text-embedding-3-small';
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;

export const catalogueSettings = {
  SWITCHBOARD_CATALOGUE: setting(
    someText.optional(),
    'File that replaces the shipped catalogue. Its entries get the origin `shipped`.',
    'the shipped catalogue',
  ),
  SWITCHBOARD_REGISTRIES: setting(
    someText.optional(),
    'Comma-separated addresses of registries to sync with on a schedule.',
  ),
  SWITCHBOARD_REGISTRY_KEYS: setting(
    someText.optional(),
    'Keys for registries that require one, as JSON: `{"https://registry.example.com":"…"}`.',
  ),
  SWITCHBOARD_SYNC_EVERY: setting(
    wholeNumber(5, 10_080, 'minutes').default(60),
    'Minutes between syncs (5 to 10080). One sync a day is a full sync.',
  ),
  SWITCHBOARD_SYNC_MAX_SHRINK: setting(
    wholeNumber(0, 100, 'a percentage').default(20),
    "Maximum percentage of a registry's servers that one sync may deactivate (0 to 100).",
  ),
  SWITCHBOARD_PROBE_EVERY: setting(
    wholeNumber(0, 720, 'hours').default(0),
    'Hours between [health checks](catalogue.md#health-checks) of all servers (up to 720). With 0, checks run only by command. compose.yaml and fly.toml set 24.',
  ),
  SWITCHBOARD_REGISTRY_ACCESS: setting(
    z.enum(['key', 'public'], 'must be key or public').default('key'),
    'Who may read `/v0.1/servers`: `key` requires a key with the scope `search`, `public` allows everyone.',
  ),
};

export const callSettings = {
  SWITCHBOARD_MAX_STREAMS: setting(
    wholeNumber(1, 100_000, 'a number of streams').default(10_000),
    'Maximum number of event streams through `/mcp/{server_id}` that are open at a time in a process (1 to 100000): [pass-through.md](pass-through.md#limits).',
  ),
  SWITCHBOARD_MAX_STREAMS_PER_KEY: setting(
    wholeNumber(1, 100_000, 'a number of streams').default(20),
    'Maximum number of such streams per API key in a process (1 to 100000).',
  ),
  SWITCHBOARD_ALLOW_PRIVATE_NETWORK: setting(
    flag.default(false),
    'Allows calls to `http:` and private addresses, but never to link-local or metadata addresses.',
  ),
  SWITCHBOARD_READ_TOOL: setting(
    flag.default(false),
    'Adds the tool `read_remote_tool` to `/mcp`: [mcp.md](mcp.md#reads-without-approval).',
  ),
};

export const searchSettings = {
  MEILISEARCH_URL: setting(
    httpUrl
      .refine(
        url => !hasCredentials(url),
        'must not contain a user or password: set MEILISEARCH_API_KEY instead',
      )
      .optional(),
    'Meilisearch server (1.13 or later) that finds the search candidates: [operations/meilisearch.md](operations/meilisearch.md).',
  ),
  MEILISEARCH_API_KEY: setting(
    visibleAscii.optional(),
    'API key of the Meilisearch server. Requires `MEILISEARCH_URL`.',
  ),
  OPENAI_API_KEY: setting(
    visibleAscii.optional(),
    "Key for OpenAI's embedding API, or for the server at `OPENAI_BASE_URL`. The API then replaces the local model: [search.md](search.md#embedding-with-an-api).",
  ),
  OPENAI_BASE_URL: setting(
    httpUrl
      .refine(url => !hasCredentials(url), 'must not contain a user or password: set OPENAI_API_KEY instead')
      .optional(),
    "Base URL of another server with OpenAI's embedding API, such as `http://127.0.0.1:11434/v1`.",
  ),
  EMBEDDING_MODEL: setting(
    someText.max(200).optional(),
    'Model of the embedding API.',
    `\`${DEFAULT_MODEL}\``,
  ),
};

export interface RegistryConfig {
  /** Addresses normalised by `registryUrl`. */
  readonly sources: readonly string[];
  /** Keys by address. They must never reach a log or an error. */
  readonly keys: ReadonlyMap<string, string>;
  readonly everyMs: number;
  readonly maxShrinkPercent: number;
  /** The interval between health checks of all servers; 0 disables them. */
  readonly probeEveryMs: number;
  /** True: serves `/v0.1/servers` without a key. */
  readonly isPublic: boolean;
}

/** The search engine used instead of the embedded index. */
export interface MeilisearchConfig {
  readonly url: string;
  /** Must never reach a log or an error. */
  readonly apiKey: string | undefined;
}

/** An embedding API used instead of the local model. */
export interface EmbeddingConfig {
  readonly baseUrl: string;
  /** Must never reach a log or an error. Undefined: `baseUrl` needs no key. */
  readonly apiKey: string | undefined;
  readonly model: string;
}

/** @throws ConfigError */
export function readRegistry(settings: z.output<z.ZodObject<typeof catalogueSettings>>): RegistryConfig {
  const listed = settings.SWITCHBOARD_REGISTRIES?.split(',').map(part => part.trim()) ?? [];
  const sources = listed.map(part => addressIn('SWITCHBOARD_REGISTRIES', part));
  return {
    sources: [...new Set(sources)],
    keys: keysOf(settings.SWITCHBOARD_REGISTRY_KEYS),
    everyMs: settings.SWITCHBOARD_SYNC_EVERY * MINUTE_MS,
    maxShrinkPercent: settings.SWITCHBOARD_SYNC_MAX_SHRINK,
    probeEveryMs: settings.SWITCHBOARD_PROBE_EVERY * HOUR_MS,
    isPublic: settings.SWITCHBOARD_REGISTRY_ACCESS === 'public',
  };
}

function addressIn(name: string, address: string): string {
  try {
    return registryUrl(address);
  } catch (error) {
    throw new ConfigError(`${name}: an address ${error instanceof Error ? error.message : String(error)}`);
  }
}

function keysOf(text: string | undefined): ReadonlyMap<string, string> {
  const name = 'SWITCHBOARD_REGISTRY_KEYS';
  const parsed = z.record(z.string(), visibleAscii).safeParse(text === undefined ? {} : jsonOf(text));
  if (!parsed.success)
    throw new ConfigError(
      `${name}: must be a JSON object of keys by address, such as {"https://registry.example.com":"…"}`,
    );
  return new Map(Object.entries(parsed.data).map(([address, key]) => [addressIn(name, address), key]));
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

type SearchSettings = z.output<z.ZodObject<typeof searchSettings>>;

/** @throws ConfigError for a key without a server */
export function readMeilisearch(settings: SearchSettings): MeilisearchConfig | undefined {
  const { MEILISEARCH_URL: url, MEILISEARCH_API_KEY: apiKey } = settings;
  if (url !== undefined) return { url, apiKey };
  if (apiKey === undefined) return undefined;
  throw new ConfigError('MEILISEARCH_API_KEY: must be set together with MEILISEARCH_URL');
}

/**
 * Returns undefined if the local model embeds, which is the case without a key and a base URL.
 * @throws ConfigError for a model without an API
 */
export function readEmbedding(settings: SearchSettings): EmbeddingConfig | undefined {
  const { OPENAI_API_KEY: apiKey, OPENAI_BASE_URL: baseUrl, EMBEDDING_MODEL: model } = settings;
  if (apiKey !== undefined || baseUrl !== undefined)
    return { baseUrl: baseUrl ?? DEFAULT_BASE_URL, apiKey, model: model ?? DEFAULT_MODEL };
  if (model === undefined) return undefined;
  throw new ConfigError(
    'EMBEDDING_MODEL: requires OPENAI_API_KEY, or OPENAI_BASE_URL for a server that needs no key',
  );
}

/**
 * Returns the base address of a registry from the address of any of its pages, without the query, `/v0.1…`
 * and a trailing slash. It identifies the registry in the catalogue.
 * @throws Error that says what is wrong with the address
 */
export function registryUrl(address: string): string {
  const url = URL.parse(address);
  if (!url || !/^https?:$/.test(url.protocol)) throw new Error('must be an http(s) URL');
  if (url.username !== '' || url.password !== '')
    throw new Error(
      "must not contain a user or password: set the registry's key in SWITCHBOARD_REGISTRY_KEYS instead",
    );
  const path = url.pathname.replace(/\/v0(\.\d+)?(\/servers)?\/?$/, '').replace(/\/+$/, '');
  return `${url.origin}${path}`;
}
