import { createHash } from 'node:crypto';
import { z } from 'zod';
import { inWords } from '../../platform/zod-issues.ts';
import {
  RESERVED_SERVER_ID,
  type AuthSpec,
  type Entry,
  type RegistryMark,
  type Transport,
} from '../catalogue/entry.ts';
import { addressVariables, templateProblem, VARIABLE } from '../catalogue/address-template.ts';
import {
  headerSchema,
  headersSchema,
  MAX_VARIABLES,
  variablesSchema,
} from '../catalogue/credential-schema.ts';
import { entryProblem, storageProblem, type ReadOptions } from '../catalogue/import-file.ts';
import { sanitise } from '../../platform/sanitize.ts';

/** Larger entries are skipped, because every entry's document is kept in memory. */
const MAX_DOCUMENT_CHARS = 32_768;

/** The result of reading an item of a registry's page. */
type ReadItem =
  | { readonly kind: 'server'; readonly name: string; readonly updatedAt?: string; readonly entry: NewEntry }
  /** The registry has deleted it, or it has no callable address. */
  | {
      readonly kind: 'ended';
      readonly name: string;
      readonly updatedAt?: string;
      readonly why: 'deleted' | 'no_remote' | 'needs_configuration';
    }
  /** An older version of a server. */
  | { readonly kind: 'superseded' }
  | { readonly kind: 'bad'; readonly name?: string; readonly reason: string };

/** A catalogue entry without its id. */
interface NewEntry {
  readonly entry: Omit<Entry, 'id'>;
  readonly mark: RegistryMark;
}

/** Reads an untrusted item of a page's `servers`. */
export function readItem(item: unknown, source: string, options: ReadOptions): ReadItem {
  const parsed = responseSchema.safeParse(item);
  if (!parsed.success) return bad(item, inWords(parsed.error.issues.slice(0, 1)));
  const { server, _meta } = parsed.data;
  const official = _meta[OFFICIAL];
  if (official.isLatest === false) return { kind: 'superseded' };
  const known = { name: server.name, ...(official.updatedAt ? { updatedAt: official.updatedAt } : {}) };
  if (official.status === 'deleted') return { kind: 'ended', ...known, why: 'deleted' };
  const address = addressOf(server);
  if (typeof address === 'string') return { kind: 'ended', ...known, why: address };
  const entry = entryOf(parsed.data, address);
  const problem = storageProblem(item) ?? sizeProblem(server) ?? entryProblem({ ...entry, id: 'x' }, options);
  if (problem !== undefined) return bad(item, problem);
  return {
    kind: 'server',
    ...known,
    entry: { entry, mark: markOf(parsed.data, source, official.status) },
  };
}

function bad(item: unknown, reason: string): ReadItem {
  const { name } = ((item as { server?: unknown } | null)?.server ?? {}) as { name?: unknown };
  return { kind: 'bad', reason, ...(typeof name === 'string' ? { name: name.slice(0, 200) } : {}) };
}

const sizeProblem = (server: object): string | undefined =>
  JSON.stringify(server).length > MAX_DOCUMENT_CHARS
    ? `has more than ${MAX_DOCUMENT_CHARS} characters`
    : undefined;

function entryOf({ server, _meta }: ServerResponse, address: Address): Omit<Entry, 'id'> {
  const own = _meta[OWN];
  const { title, name, repository, websiteUrl } = server;
  const homepage = webUrl(websiteUrl);
  const code = webUrl(repository?.url);
  return {
    name: title?.trim() || name.slice(name.indexOf('/') + 1),
    description: own?.description?.trim() || server.description.trim() || name,
    remote_url: address.url,
    transport: address.transport,
    auth: address.auth,
    ...(homepage === undefined ? {} : { homepage }),
    ...(code === undefined ? {} : { repository: code }),
    ...(own?.categories === undefined ? {} : { categories: own.categories }),
  };
}

/** Drops an invalid link, which is no reason to skip a server. */
const webUrl = (text: string | null | undefined): string | undefined =>
  typeof text === 'string' && /^https?:\/\//.test(text) && URL.canParse(text) ? text : undefined;

function markOf(
  { server, _meta }: ServerResponse,
  source: string,
  status: RegistryMark['status'],
): RegistryMark {
  const { statusMessage, publishedAt } = _meta[OFFICIAL];
  return {
    source,
    name: server.name,
    version: server.version,
    status,
    ...(statusMessage ? { statusMessage: sanitise(statusMessage, 500) } : {}),
    ...(publishedAt ? { publishedAt } : {}),
    document: server,
  };
}

interface Address {
  readonly url: string;
  readonly transport: Transport;
  readonly auth: AuthSpec;
}

/**
 * Returns the first Streamable HTTP remote that can be called, or else the first HTTP+SSE one. Those with variables that somebody
 * must fill come last.
 */
function addressOf({ remotes }: ServerResponse['server']): Address | 'no_remote' | 'needs_configuration' {
  const known = (remotes ?? []).flatMap(remote => remoteSchema.safeParse(remote).data ?? []);
  const usable = known.filter(({ type }) => type === 'streamable-http' || type === 'sse');
  if (usable.length === 0) return 'no_remote';
  const whole = usable.flatMap(remote => {
    const url = filledIn(remote);
    return url === undefined ? [] : { url, transport: remote.type as Transport, auth: authOf(remote) };
  });
  const templates = usable.flatMap(remote => templateOf(remote) ?? []);
  return preferred(whole) ?? preferred(templates) ?? 'needs_configuration';
}

const preferred = (addresses: readonly Address[]): Address | undefined =>
  addresses.find(({ transport }) => transport === 'streamable-http') ?? addresses[0];

/** Returns an address whose variables a person fills; undefined if there is none that could be filled safely. */
function templateOf(remote: Remote): Address | undefined {
  const variables = new Map(Object.entries(remote.variables ?? {}));
  const [host = ''] = /^[^:]*:\/\/[^/?#]*/.exec(remote.url) ?? [];
  const url = remote.url.replaceAll(VARIABLE, (whole, name: string, at: number) => {
    const { value, default: preset, isSecret } = variables.get(name) ?? {};
    const fixed = value ?? (at < host.length ? preset : undefined);
    return isSecret === true ? whole : (fixed ?? whole);
  });
  const { all } = addressVariables(url);
  const hasOthers = /[{}]/.test(url.replaceAll(VARIABLE, ''));
  if (
    all.length === 0 ||
    hasOthers ||
    !URL.canParse(url) ||
    templateProblem(url, MAX_VARIABLES) !== undefined
  )
    return undefined;
  const inputs = all.map(name => [name, fieldOf(variables.get(name) ?? { isRequired: true })] as const);
  const read = variablesSchema.safeParse(Object.fromEntries(inputs));
  const { headers } = authOf(remote);
  const asked = read.success ? { variables: read.data } : {};
  const auth: AuthSpec = { kind: 'static_header', ...(headers ? { headers } : {}), ...asked };
  return { url, transport: remote.type as Transport, auth };
}

/** Fills an address's `{variables}` with their values or defaults. Returns undefined if one has neither or is secret. */
function filledIn({ url, variables }: Remote): string | undefined {
  let isWhole = true;
  const filled = url.replaceAll(/\{([^{}]*)\}/g, (_, name: string) => {
    const variable = Object.hasOwn(variables ?? {}, name) ? variables?.[name] : undefined;
    const value = variable?.value ?? variable?.default;
    if (typeof value !== 'string' || variable?.isSecret === true) isWhole = false;
    return String(value);
  });
  return isWhole && URL.canParse(filled) ? filled : undefined;
}

/** A required header is where a caller's own key belongs. Headers that no connection may set are left out. */
function authOf({ headers }: Remote): AuthSpec {
  if (!headers?.some(({ isRequired }) => isRequired === true)) return { kind: 'unknown' };
  const specs = headers.flatMap(({ name, value, variables, ...input }) => {
    const spec = {
      name,
      ...(value ? { value } : {}),
      ...fieldOf(input),
      variables: Object.fromEntries(
        // A required header needs its variables, whatever they say of themselves.
        Object.entries(variables ?? {}).map(([key, one]) => [
          key,
          fieldOf({ ...one, isRequired: one.isRequired ?? input.isRequired }),
        ]),
      ),
    };
    return headerSchema.safeParse(spec).data ?? [];
  });
  const read = headersSchema.safeParse(specs);
  return { kind: 'static_header', ...(read.success ? { headers: read.data } : {}) };
}

/** The registry's default for what is not stated is "optional" and "not secret". A header with a key is neither. */
const fieldOf = ({ description, placeholder, choices, isRequired, isSecret, ...input }: RegistryInput) => ({
  required: isRequired === true,
  secret: isSecret !== false,
  ...(description ? { description: sanitise(description, 2_000) } : {}),
  ...(input.default ? { default: input.default } : {}),
  ...(placeholder ? { placeholder: sanitise(placeholder, 200) } : {}),
  ...(choices ? { choices } : {}),
});

const MAX_ID_CHARS = 128;

/**
 * Returns the id of a registry's entry: its name in lower case with `_` for the slash. Part of a hash is appended if that id is
 * taken, reserved or invalid.
 * @param holder returns the registry name that has an id
 */
export function idFor(name: string, holder: (id: string) => string | undefined): string {
  const plain = name.toLowerCase().replace('/', '_');
  const other = holder(plain);
  const isFree = plain !== RESERVED_SERVER_ID && (other === undefined || other === name);
  if (isFree && /^[a-z0-9]/.test(plain) && plain.length <= MAX_ID_CHARS) return plain;
  const hash = createHash('sha256').update(name).digest('hex').slice(0, 10);
  return `${plain.replace(/^[^a-z0-9]+/, '').slice(0, MAX_ID_CHARS - hash.length - 1)}-${hash}`;
}

// Documents of the registry API v0.1 (OpenAPI of 2025-12-01, server.json of 2025-12-11), parsed leniently: unknown fields are kept.

export const SERVER_SCHEMA = 'https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json';
/** Member of `_meta` with the registry's own statements about an entry, as opposed to its publisher's. */
export const OFFICIAL = 'io.modelcontextprotocol.registry/official';
/** Member of `_meta` with Switchboard's statements about an entry. */
export const OWN = 'dev.switchboard/server';

const text = (max: number) => z.string().max(max);
const inputSchema = z.looseObject({
  description: text(4_096).nullish(),
  value: text(4_096).nullish(),
  default: text(4_096).nullish(),
  choices: z.array(text(4_096)).max(100).nullish(),
  placeholder: text(4_096).nullish(),
  isRequired: z.boolean().nullish(),
  isSecret: z.boolean().nullish(),
});
type RegistryInput = z.output<typeof inputSchema>;
const inputsSchema = z.record(z.string(), inputSchema).nullish();

const remoteSchema = z.looseObject({
  type: text(64),
  url: text(2_048),
  headers: z
    .array(z.looseObject({ ...inputSchema.shape, name: text(256), variables: inputsSchema }))
    .max(100)
    .nullish(),
  variables: inputsSchema,
});
type Remote = z.output<typeof remoteSchema>;

const serverSchema = z.looseObject({
  name: text(200)
    .min(3)
    .regex(/^[a-zA-Z0-9.-]+\/[a-zA-Z0-9._-]+$/, 'must be NAMESPACE/NAME'),
  description: text(4_000).default(''),
  version: text(255).min(1),
  title: text(200).nullish(),
  websiteUrl: text(2_048).nullish(),
  repository: z.looseObject({ url: text(2_048).nullish() }).nullish(),
  remotes: z.array(z.unknown()).max(50).nullish(),
});

/** `isLatest` and the times are absent if a registry does not state them. */
const officialSchema = z.looseObject({
  status: z.enum(['active', 'deprecated', 'deleted']).default('active'),
  statusMessage: text(2_000).nullish(),
  publishedAt: z.iso.datetime({ offset: true }).nullish(),
  updatedAt: z.iso.datetime({ offset: true }).nullish(),
  isLatest: z.boolean().nullish(),
});

/** Fields that one Switchboard passes to another and the standard does not define. */
const ownSchema = z.looseObject({
  description: text(4_000).optional(),
  categories: z.array(text(64).min(1)).max(20).optional(),
});

const responseSchema = z.looseObject({
  server: serverSchema,
  _meta: z
    .looseObject({
      [OFFICIAL]: officialSchema.default({ status: 'active' }),
      // Optional: an invalid one is ignored.
      [OWN]: ownSchema.optional().catch(undefined),
    })
    .default({ [OFFICIAL]: { status: 'active' } }),
});
type ServerResponse = z.output<typeof responseSchema>;

/** A page of entries. They are parsed individually, so that a bad entry does not affect the others. */
export const pageSchema = z.looseObject({
  servers: z.array(z.unknown()).nullable(),
  metadata: z.looseObject({ nextCursor: text(4_096).nullish() }).nullish(),
});

/** Limits the number of problems in a report. */
const MAX_PROBLEMS = 100;

/** Entries of a registry's listing, collected page by page. Of duplicate names, the last entry wins. */
export class Listing {
  readonly marks = new Map<string, RegistryMark>();
  readonly ended = new Set<string>();
  /** Ids of bad entries: the catalogued servers stay unchanged. */
  readonly kept = new Set<string>();
  readonly counts = {
    received: 0,
    skipped: { deleted: 0, no_remote: 0, needs_configuration: 0 },
    problems: [] as { name?: string; reason: string }[],
    bad: 0,
  };
  highWater: string | undefined;
  readonly #entries = new Map<string, Entry>();
  readonly #nameOf: (id: string) => string | undefined;

  /** @param nameOf returns the registry name that the catalogue has under an id */
  constructor(nameOf: (id: string) => string | undefined) {
    this.#nameOf = nameOf;
  }

  get entries(): Entry[] {
    return [...this.#entries.values()];
  }

  add(read: ReadItem): void {
    this.counts.received++;
    if ('updatedAt' in read) this.highWater = laterOf(this.highWater, read.updatedAt);
    if (read.kind === 'bad') this.#addProblem(read);
    if (read.kind === 'ended') {
      this.counts.skipped[read.why]++;
      const id = this.#idOf(read.name);
      this.#forget(id);
      this.ended.add(id);
    }
    if (read.kind === 'server') {
      const id = this.#idOf(read.name);
      this.#forget(id);
      this.#entries.set(id, { ...read.entry.entry, id });
      this.marks.set(id, read.entry.mark);
    }
  }

  #addProblem({ name, reason }: { name?: string; reason: string }): void {
    this.counts.bad++;
    if (name !== undefined) this.kept.add(this.#idOf(name));
    if (this.counts.problems.length < MAX_PROBLEMS)
      this.counts.problems.push({ ...(name === undefined ? {} : { name }), reason });
  }

  #forget(id: string): void {
    this.#entries.delete(id);
    this.marks.delete(id);
    this.ended.delete(id);
  }

  #idOf(name: string): string {
    return idFor(name, id => this.marks.get(id)?.name ?? this.#nameOf(id));
  }
}

/** Returns the later of two RFC 3339 times. */
export const laterOf = (one: string | undefined, other: string | undefined): string | undefined => {
  if (one === undefined || other === undefined) return one ?? other;
  return Date.parse(one) > Date.parse(other) ? one : other;
};
