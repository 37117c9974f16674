import { createHash } from 'node:crypto';
import { inWords } from '../../platform/zod-issues.ts';
import {
  RESERVED_SERVER_ID,
  type AuthSpec,
  type Entry,
  type RegistryMark,
  type Transport,
} from '../catalogue/entry.ts';
import { entryProblem, storageProblem, type ReadOptions } from '../catalogue/import-file.ts';
import { sanitise } from '../../platform/sanitize.ts';
import {
  OFFICIAL,
  OWN,
  remoteSchema,
  responseSchema,
  type Remote,
  type ServerResponse,
} from './documents.ts';

/** Larger entries are left out, as every entry's document is kept in memory. */
const MAX_DOCUMENT_CHARS = 32_768;

/** Result of reading an item of a registry's page. */
export type ReadItem =
  | { readonly kind: 'server'; readonly name: string; readonly updatedAt?: string; readonly entry: NewEntry }
  /** The registry has deleted it, or it no longer has an address that can be called. */
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

/** Drops an invalid link, which is no reason to leave a server out. */
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

/** Returns the first Streamable HTTP remote that can be called as it is, or else the first HTTP+SSE one. */
function addressOf({ remotes }: ServerResponse['server']): Address | 'no_remote' | 'needs_configuration' {
  const known = (remotes ?? []).flatMap(remote => remoteSchema.safeParse(remote).data ?? []);
  const usable = known.filter(({ type }) => type === 'streamable-http' || type === 'sse');
  if (usable.length === 0) return 'no_remote';
  const addresses = usable.flatMap(remote => {
    const url = filledIn(remote);
    return url === undefined ? [] : { url, transport: remote.type as Transport, auth: authOf(remote) };
  });
  return (
    addresses.find(({ transport }) => transport === 'streamable-http') ??
    addresses[0] ??
    'needs_configuration'
  );
}

/** Fills an address's `{variables}` with their values or defaults. Returns undefined where one has neither, or is secret. */
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

/** A required header is where a caller's own key goes. */
const authOf = ({ headers }: Remote): AuthSpec =>
  (headers ?? []).some(({ isRequired }) => isRequired === true)
    ? { kind: 'static_header' }
    : { kind: 'unknown' };

const MAX_ID_CHARS = 128;

/**
 * Returns the id of a registry's entry: its name in lower case with `_` for the slash. A part of a hash is added where that id is taken,
 * reserved or invalid.
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
