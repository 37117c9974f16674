import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { ConfigError } from './error.ts';
import { providersSchema, resolveProviders, type ProviderSettings } from './providers.ts';
import { inWords } from '../platform/zod-issues.ts';

export interface IdentityConfig {
  /** Key-encryption keys by id: the first encrypts, all decrypt. Undefined: the data folder's own key file. */
  readonly keks: readonly Kek[] | undefined;
  readonly providers: ReadonlyMap<string, ProviderSettings>;
  /** How long after its use a used refresh token counts as a race and not as theft; 0 = never. */
  readonly refreshRaceMs: number;
  /** What a reused refresh token ends. */
  readonly reuseAction: 'family' | 'user';
  /** The vault's key is lost: begin with a new one, without what the old one sealed. */
  readonly mayLoseStoredTokens: boolean;
}

/** A key-encryption key: 256 bits, and the id that what it encrypted carries. */
export interface Kek {
  readonly id: string;
  readonly key: Uint8Array;
}

/** The variables that only identity reads. */
export const identityEnvironment = {
  GOOGLE_CLIENT_ID: z.string().min(1).optional(),
  GOOGLE_CLIENT_SECRET: z.string().min(1).optional(),
  SWITCHBOARD_KEKS: z.string().min(1).optional(),
  SWITCHBOARD_PROVIDERS: z.string().min(1).optional(),
  SWITCHBOARD_REFRESH_RACE_MS: z
    .string()
    .regex(/^\d{1,5}$/, 'must be milliseconds from 0 to 60000')
    .transform(Number)
    .refine(ms => ms <= 60_000, 'must be milliseconds from 0 to 60000')
    .default(2000),
  SWITCHBOARD_REFRESH_REUSE_ACTION: z.enum(['family', 'user'], 'must be family or user').default('family'),
  SWITCHBOARD_VAULT_RESET: z.literal('lose-stored-tokens', 'must be lose-stored-tokens, or unset').optional(),
};
type Settings = z.output<z.ZodObject<typeof identityEnvironment>>;

interface Surroundings {
  /** Why this is no trial on one machine, such as `DATABASE_URL is set`; undefined when it may be one. */
  readonly production: string | undefined;
  readonly publicUrl: string | undefined;
  /** Plain http on loopback, for development. */
  readonly allowHttp: boolean;
}

/** @throws ConfigError */
export function readIdentity(settings: Settings, surroundings: Surroundings): IdentityConfig {
  const { production, publicUrl, allowHttp } = surroundings;
  const keks = settings.SWITCHBOARD_KEKS === undefined ? undefined : parseKeks(settings.SWITCHBOARD_KEKS);
  if (keks === undefined && production !== undefined) {
    throw new ConfigError(
      `SWITCHBOARD_KEKS: must be set when ${production}: "k1:" and 32 random bytes in base64 (openssl rand -base64 32), or the keys of the installation that the data come from`,
    );
  }
  const providers = readProviders(settings, allowHttp);
  if (production !== undefined) requirePublicUrl(providers, publicUrl, production);
  return {
    keks,
    providers,
    refreshRaceMs: settings.SWITCHBOARD_REFRESH_RACE_MS,
    reuseAction: settings.SWITCHBOARD_REFRESH_REUSE_ACTION,
    mayLoseStoredTokens: settings.SWITCHBOARD_VAULT_RESET !== undefined,
  };
}

/** `k2:base64,k1:base64`. No error quotes any part of the value. */
function parseKeks(value: string): readonly Kek[] {
  const keks = value.split(',').map((part, at) => {
    const match = /^\s*([a-z0-9][a-z0-9_-]{0,31}):([A-Za-z0-9+/_-]+={0,2})\s*$/.exec(part);
    const key = Buffer.from(match?.[2] ?? '', 'base64');
    if (!match?.[1] || key.length !== 32) {
      throw new ConfigError(
        `SWITCHBOARD_KEKS: entry ${at + 1} must be an id (a-z, 0-9, "_", "-"), ":" and 32 bytes in base64`,
      );
    }
    return { id: match[1], key: new Uint8Array(key) };
  });
  if (new Set(keks.map(({ id }) => id)).size < keks.length)
    throw new ConfigError('SWITCHBOARD_KEKS: two keys have the same id');
  return keks;
}

function readProviders(settings: Settings, allowHttp: boolean): ReadonlyMap<string, ProviderSettings> {
  const refuse = (why: string) => new ConfigError(`SWITCHBOARD_PROVIDERS: ${why}`);
  const { SWITCHBOARD_PROVIDERS: value, GOOGLE_CLIENT_ID: id, GOOGLE_CLIENT_SECRET: secret } = settings;
  if ((id === undefined) !== (secret === undefined))
    throw new ConfigError('GOOGLE_CLIENT_ID: must be set together with GOOGLE_CLIENT_SECRET');
  const parsed = providersSchema.safeParse(value === undefined ? {} : readJson(value, refuse));
  if (!parsed.success) throw refuse(inWords(parsed.error.issues.slice(0, 1)));
  try {
    const resolved = resolveProviders(parsed.data, { id, secret });
    for (const provider of resolved.values()) requireSafeUrls(provider, allowHttp);
    return resolved;
  } catch (error) {
    throw refuse(error instanceof Error ? error.message : String(error));
  }
}

/** Text that starts with `{`, else the path of a file. Neither the text nor the file's is quoted: it holds secrets. */
function readJson(value: string, refuse: (why: string) => ConfigError): unknown {
  let text = value;
  if (!value.trimStart().startsWith('{')) {
    try {
      text = readFileSync(value, 'utf8');
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? String(error.code) : 'unreadable';
      throw refuse(`must be a JSON object, or the path of a file with one that can be read (${code})`);
    }
  }
  try {
    return JSON.parse(text);
  } catch {
    throw refuse('is not valid JSON');
  }
}

/** Plain http gives codes and tokens to whoever listens: on this machine only, and only for development. */
function requireSafeUrls(provider: ProviderSettings, allowHttp: boolean): void {
  const { name, issuer, endpoints, allowedOrigins } = provider;
  const plain = allowedOrigins.find(origin => !isHttps(origin));
  if (plain !== undefined && !allowHttp)
    throw new Error(
      `${name}: allowed_origins: ${plain} must be https (http only with SWITCHBOARD_ALLOW_PRIVATE_NETWORK=true)`,
    );
  for (const text of [issuer, ...Object.values(endpoints ?? {})]) {
    if (text === undefined || isHttps(text) || (allowHttp && isOnLoopback(text))) continue;
    throw new Error(
      `${name}: ${text} must be https (http only on loopback, with SWITCHBOARD_ALLOW_PRIVATE_NETWORK=true)`,
    );
  }
}

/**
 * Providers send users back to PUBLIC_URL, and it is the issuer in every identity token: derived from the address listened
 * on, both would be wrong behind a proxy, and would change with the port.
 */
function requirePublicUrl(
  providers: IdentityConfig['providers'],
  publicUrl: string | undefined,
  production: string,
): void {
  const configured = [...providers.values()].find(({ client }) => client !== undefined);
  if (!configured) return;
  const what = `when ${production} and the identity provider ${configured.name} is configured`;
  if (publicUrl === undefined)
    throw new ConfigError(
      `PUBLIC_URL: must be set ${what}: users come back to it, and identity tokens name it as their issuer`,
    );
  if (!isHttps(publicUrl) && !isOnLoopback(publicUrl))
    throw new ConfigError(`PUBLIC_URL: must be https ${what}: codes and tokens pass through it`);
}

const isHttps = (url: string) => new URL(url).protocol === 'https:';

const isOnLoopback = (url: string) => LOOPBACK_NAMES.includes(new URL(url).hostname);

export const LOOPBACK_NAMES = ['localhost', '127.0.0.1', '[::1]'];
