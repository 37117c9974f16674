import { z } from 'zod';
import { ConfigError } from './error.ts';
import { registryUrl } from './registry-url.ts';

const MIN_MINUTES = 5;
const MAX_MINUTES = 10_080;
const MAX_HOURS = 720;

const wholeNumber = (min: number, max: number, what: string) =>
  z
    .string()
    .regex(/^\d{1,5}$/, `must be ${what} from ${min} to ${max}`)
    .transform(Number)
    .refine(value => value >= min && value <= max, `must be ${what} from ${min} to ${max}`);

export const registryEnvironment = {
  SWITCHBOARD_REGISTRIES: z.string().min(1).optional(),
  SWITCHBOARD_REGISTRY_KEYS: z.string().min(1).optional(),
  SWITCHBOARD_SYNC_EVERY: wholeNumber(MIN_MINUTES, MAX_MINUTES, 'minutes').default(60),
  SWITCHBOARD_SYNC_MAX_SHRINK: wholeNumber(0, 100, 'a percentage').default(20),
  SWITCHBOARD_PROBE_EVERY: wholeNumber(0, MAX_HOURS, 'hours').default(0),
  SWITCHBOARD_REGISTRY_ACCESS: z.enum(['key', 'public'], 'must be key or public').default('key'),
};
type Settings = z.output<z.ZodObject<typeof registryEnvironment>>;

export interface RegistryConfig {
  /** Addresses in the form of `registryUrl`. */
  readonly sources: readonly string[];
  /** By address. They must reach no log and no error. */
  readonly keys: ReadonlyMap<string, string>;
  readonly everyMs: number;
  readonly maxShrinkPercent: number;
  /** How often the servers of the catalogue are visited; 0: never. */
  readonly probeEveryMs: number;
  /** Whether `/v0.1/servers` is served to those without a key. */
  readonly isPublic: boolean;
}

/** @throws ConfigError */
export function readRegistry(settings: Settings): RegistryConfig {
  const listed = settings.SWITCHBOARD_REGISTRIES?.split(',').map(part => part.trim()) ?? [];
  const sources = listed.map(part => addressIn('SWITCHBOARD_REGISTRIES', part));
  return {
    sources: [...new Set(sources)],
    keys: keysOf(settings.SWITCHBOARD_REGISTRY_KEYS),
    everyMs: settings.SWITCHBOARD_SYNC_EVERY * 60_000,
    maxShrinkPercent: settings.SWITCHBOARD_SYNC_MAX_SHRINK,
    probeEveryMs: settings.SWITCHBOARD_PROBE_EVERY * 3_600_000,
    isPublic: settings.SWITCHBOARD_REGISTRY_ACCESS === 'public',
  };
}

function addressIn(setting: string, address: string): string {
  try {
    return registryUrl(address);
  } catch (error) {
    throw new ConfigError(`${setting}: an address ${error instanceof Error ? error.message : String(error)}`);
  }
}

const KEYS_FORM = 'must be a JSON object of keys by address, such as {"https://registry.example.com":"…"}';

function keysOf(text: string | undefined): ReadonlyMap<string, string> {
  if (text === undefined) return new Map();
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new ConfigError(`SWITCHBOARD_REGISTRY_KEYS: ${KEYS_FORM}`);
  }
  const parsed = z.record(z.string(), z.string().regex(/^[\x21-\x7e]+$/)).safeParse(value);
  if (!parsed.success) throw new ConfigError(`SWITCHBOARD_REGISTRY_KEYS: ${KEYS_FORM}`);
  return new Map(
    Object.entries(parsed.data).map(([address, key]) => [
      addressIn('SWITCHBOARD_REGISTRY_KEYS', address),
      key,
    ]),
  );
}
