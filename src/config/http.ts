import { isIP } from 'node:net';
import { availableParallelism } from 'node:os';
import { z } from 'zod';
import {
  ConfigError,
  httpUrl,
  LOOPBACK_NAMES,
  setting,
  someText,
  visibleAscii,
  wholeNumber,
  withoutStrayPercent,
} from './setting.ts';

/** Classes of endpoints. Each has its own rate limit per API key. `BUCKETS` in `core/access/rate-limits.ts` has the other limits. */
const RATE_CLASSES = ['search', 'proxy', 'refresh', 'sessions', 'revoke', 'admin'] as const;
export type RateClass = (typeof RATE_CLASSES)[number];

interface RateLimit {
  readonly calls: number;
  readonly seconds: number;
}

const DEFAULT_RATE_LIMITS: Record<RateClass, RateLimit> = {
  search: { calls: 300, seconds: 60 },
  proxy: { calls: 600, seconds: 60 },
  refresh: { calls: 600, seconds: 60 },
  sessions: { calls: 120, seconds: 60 },
  revoke: { calls: 60, seconds: 60 },
  admin: { calls: 120, seconds: 60 },
};

const MAX_WORKERS = 64;

export const httpSettings = {
  PORT: setting(
    wholeNumber(0, 65_535, 'a port number').default(8080),
    'Port to listen on. 0 picks any free port.',
  ),
  HOST: setting(someText.default('127.0.0.1'), 'Address to listen on.'),
  PUBLIC_URL: setting(
    httpUrl.optional(),
    'Public address of Switchboard: the issuer of identity tokens and the base of callbacks. See [below](#when-public_url-is-required).',
  ),
  SWITCHBOARD_ALLOWED_HOSTS: setting(
    someText.optional(),
    'Comma-separated names allowed in Host and Origin headers; `*` allows any.',
    'loopback names and the host of `PUBLIC_URL`',
  ),
  SWITCHBOARD_TRUST_PROXY: setting(
    someText.optional(),
    'Number or addresses of the proxies in front.',
    '`false`',
  ),
  SWITCHBOARD_DRAIN_MS: setting(
    wholeNumber(0, 300_000, 'a whole number of milliseconds').default(0),
    'Milliseconds (0 to 300000) to keep serving after SIGTERM. `/readyz` returns 503 meanwhile, so that load balancers notice.',
  ),
  SWITCHBOARD_WORKERS: setting(
    z
      .string()
      .refine(
        text => text === 'auto' || (/^[1-9]\d?$/.test(text) && Number(text) <= MAX_WORKERS),
        `must be auto or a whole number from 1 to ${MAX_WORKERS}`,
      )
      .default('1'),
    `Number of processes (1 to ${MAX_WORKERS}) that serve on the port together; more than one needs \`DATABASE_URL\`. \`auto\`: one per core with it, one without it. See [operations/deploy.md](operations/deploy.md#more-than-one-core).`,
  ),
};

export const accessSettings = {
  SWITCHBOARD_API_KEY: setting(
    visibleAscii.min(32, 'must have at least 32 characters').optional(),
    'An API key of your choice (at least 32 characters) with all scopes. Without it, the first start prints a new key.',
  ),
  SWITCHBOARD_RATE_LIMIT: setting(
    someText.optional(),
    'Rate limits per key, as comma-separated `CLASS=REQUESTS/SECONDS`. Classes not named keep their default. `off` disables all of them, and the [fixed limits](limits.md#rates-and-connections) per address and session; a single class cannot be disabled.',
    `\`${Object.entries(DEFAULT_RATE_LIMITS)
      .map(([name, { calls, seconds }]) => `${name}=${calls}/${seconds}`)
      .join(',')}\``,
  ),
  REDIS_URL: setting(
    withoutStrayPercent(z.url({ protocol: /^rediss?$/, error: 'must be a redis:// or rediss:// URL' }))
      .refine(
        url => !URL.canParse(url) || /^(\/\d*)?$/.test(new URL(url).pathname),
        'must end with the host, or with / and a database number',
      )
      .optional(),
    'Redis or Valkey server that shares rate limits between processes: [operations/redis.md](operations/redis.md).',
  ),
};

export interface HttpConfig {
  readonly host: string;
  /** 0 picks any free port. */
  readonly port: number;
  /** Without a trailing slash. Undefined: derived from the listening address. */
  readonly publicUrl: string | undefined;
  /** Lower-case host names (without port) allowed in the Host and Origin headers; `*` = any. */
  readonly allowedHosts: readonly string[];
  /** Express's `trust proxy`: the number of proxies in front, or their addresses. */
  readonly trustProxy: number | string | false;
  /** How long a stopping process keeps serving while `/readyz` returns 503, so that load balancers notice. */
  readonly drainMs: number;
  /** How many processes serve on the port together. */
  readonly workers: number;
  /** True if that number was left to Switchboard (`auto`). */
  readonly areWorkersAuto: boolean;
}

export interface AccessConfig {
  /** A key from the environment, accepted for tenant `local` with all scopes. Must never reach a log. */
  readonly apiKey: string | undefined;
  /** `off` disables all limits. */
  readonly rateLimits: Readonly<Record<RateClass, RateLimit>> | 'off';
  /** Redis server that shares rate limits between processes. The URL contains a password and must never reach a log or an error. */
  readonly redisUrl: string | undefined;
}

/**
 * @param hasPostgres false: the embedded database, which one process can use
 * @throws ConfigError
 */
export function readHttp(
  settings: z.output<z.ZodObject<typeof httpSettings>>,
  { hasPostgres }: { readonly hasPostgres: boolean },
): HttpConfig {
  const { HOST: host, SWITCHBOARD_ALLOWED_HOSTS: listed } = settings;
  const publicUrl = settings.PUBLIC_URL?.replace(/\/+$/, '');
  return {
    host,
    port: settings.PORT,
    publicUrl,
    allowedHosts: allowedHosts(listed, host, publicUrl),
    trustProxy: trustProxy(settings.SWITCHBOARD_TRUST_PROXY),
    drainMs: settings.SWITCHBOARD_DRAIN_MS,
    workers: workers(settings.SWITCHBOARD_WORKERS, hasPostgres),
    areWorkersAuto: settings.SWITCHBOARD_WORKERS === 'auto',
  };
}

function workers(value: string, hasPostgres: boolean): number {
  if (value === 'auto') return hasPostgres ? Math.min(availableParallelism(), MAX_WORKERS) : 1;
  const count = Number(value);
  if (count > 1 && !hasPostgres) {
    throw new ConfigError(
      'SWITCHBOARD_WORKERS: the embedded database supports one process; set DATABASE_URL to a Postgres database, or unset SWITCHBOARD_WORKERS',
    );
  }
  return count;
}

/** @throws ConfigError */
export const readAccess = (settings: z.output<z.ZodObject<typeof accessSettings>>): AccessConfig => ({
  apiKey: settings.SWITCHBOARD_API_KEY,
  rateLimits: rateLimits(settings.SWITCHBOARD_RATE_LIMIT),
  redisUrl: settings.REDIS_URL,
});

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
  if (publicUrl !== undefined) return [...LOOPBACK_NAMES, new URL(publicUrl).hostname];
  if (isLoopback(host)) return LOOPBACK_NAMES;
  throw new ConfigError(
    `HOST: ${host} is reachable from other machines; set PUBLIC_URL or SWITCHBOARD_ALLOWED_HOSTS to the names that clients use`,
  );
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

const RATE_LIMIT = new RegExp(String.raw`^\s*(${RATE_CLASSES.join('|')})=([1-9]\d{0,8})/([1-9]\d{0,6})\s*$`);

function rateLimits(value: string | undefined): AccessConfig['rateLimits'] {
  if (value === 'off') return 'off';
  const limits = { ...DEFAULT_RATE_LIMITS };
  for (const part of value?.split(',') ?? []) {
    const match = RATE_LIMIT.exec(part);
    if (!match) {
      throw new ConfigError(
        `SWITCHBOARD_RATE_LIMIT: "${part.trim()}" must be off or CLASS=REQUESTS/SECONDS with CLASS one of ${RATE_CLASSES.join(', ')}`,
      );
    }
    const [, name, requests, seconds] = match;
    limits[name as RateClass] = { calls: Number(requests), seconds: Number(seconds) };
  }
  return limits;
}
