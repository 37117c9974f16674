import { and, asc, eq, gt, gte, or, sql, type SQL } from 'drizzle-orm';
import { isIP } from 'node:net';
import { SwitchboardError } from '../../errors.ts';
import { quoted } from '../../platform/sanitize.ts';
import type { Database } from '../../platform/database/database.ts';
import { addressVariables } from '../catalogue/address-template.ts';
import { takesHeader, type CredentialInput, type HeaderSpec } from '../catalogue/credential-schema.ts';
import type { AuthSpec } from '../catalogue/entry.ts';
import { shownHealth, type ShownHealth } from '../catalogue/health.ts';
import { storageProblem } from '../catalogue/import-file.ts';
import { serverHealth, servers as table, serverToolParts as parts } from '../catalogue/schema.ts';
import { OFFICIAL, OWN, SERVER_SCHEMA } from './entry.ts';

/** The standard's limit for descriptions; the full one is in `_meta`. */
const MAX_DESCRIPTION_CHARS = 100;
/** Entries that came from no registry have no versions; `updatedAt` says when they changed. */
const OWN_VERSION = '1.0.0';

export interface ListQuery {
  readonly cursor?: string | undefined;
  readonly limit: number;
  /** Part of a name; case is ignored. */
  readonly search?: string | undefined;
  /** RFC 3339. */
  readonly updatedSince?: string | undefined;
  /** `latest`, or an exact version. */
  readonly version?: string | undefined;
  readonly includeDeleted?: boolean | undefined;
}

export interface ServedPage {
  readonly servers: object[];
  readonly metadata: { readonly nextCursor?: string; readonly count: number };
}

const COLUMNS = {
  id: table.id,
  name: table.name,
  description: table.description,
  remoteUrl: table.remoteUrl,
  transport: table.transport,
  auth: table.auth,
  homepage: table.homepage,
  repository: table.repository,
  categories: table.categories,
  origin: table.origin,
  registry: table.registry,
  active: table.active,
  createdAt: table.createdAt,
  updatedAt: table.updatedAt,
  health: {
    state: serverHealth.state,
    checkedAt: serverHealth.checkedAt,
    latencyMs: serverHealth.latencyMs,
  },
  toolCount: sql<number>`(jsonb_array_length(${table.tools}) + (select coalesce(sum(jsonb_array_length(${parts.tools})), 0) from ${parts} where ${parts.serverId} = ${table.id}))::int`,
};
interface Row extends Pick<typeof table.$inferSelect, Exclude<keyof typeof COLUMNS, 'toolCount' | 'health'>> {
  readonly toolCount: number;
  /** Null for a server that was not checked at its current address. */
  readonly health: Pick<typeof serverHealth.$inferSelect, 'state' | 'checkedAt' | 'latencyMs'> | null;
}

/**
 * Serves the catalogue as a registry with the API v0.1: each server with its only known version. An entry from a registry
 * keeps its name; others are named `NAMESPACE/ID`, where the namespace is the reversed public host name.
 */
export class ServedRegistry {
  readonly #db: Database;
  readonly #publicUrl: () => string;
  readonly #namespace: string;

  /** @param options.publicUrl the configured public address; `url` is any address of this process */
  constructor(db: Database, { publicUrl, url }: { publicUrl: string | undefined; url: () => string }) {
    this.#db = db;
    this.#publicUrl = url;
    this.#namespace = namespaceOf(publicUrl);
  }

  /** Lists servers ordered by id. @throws SwitchboardError `invalid_request` for a cursor that was not issued here */
  async list(query: ListQuery): Promise<ServedPage> {
    const { cursor, limit, search, updatedSince, version = 'latest', includeDeleted } = query;
    const rows = await this.#rows(
      [
        cursor === undefined ? undefined : gt(table.id, idOf(cursor)),
        search === undefined ? undefined : this.#isFoundBy(search),
        updatedSince === undefined ? undefined : gte(table.updatedAt, sinceEpoch(updatedSince)),
        version === 'latest' ? undefined : eq(VERSION, version),
        (includeDeleted ?? updatedSince !== undefined) ? undefined : eq(table.active, true),
      ],
      limit + 1,
    );
    const page = rows.slice(0, limit);
    const last = rows.length > limit ? page.at(-1) : undefined;
    return {
      servers: page.map(row => this.#shown(row)),
      metadata: { ...(last ? { nextCursor: cursorOf(last.id) } : {}), count: page.length },
    };
  }

  /** Returns all versions of a server: exactly one. @throws SwitchboardError `server_not_found` */
  async versions(name: string, includeDeleted = false): Promise<ServedPage> {
    return { servers: [await this.#one(name, undefined, includeDeleted)], metadata: { count: 1 } };
  }

  /** @throws SwitchboardError `server_not_found` */
  version(name: string, version: string, includeDeleted = false): Promise<object> {
    return this.#one(name, version === 'latest' ? undefined : version, includeDeleted);
  }

  async #one(name: string, version: string | undefined, includeDeleted: boolean): Promise<object> {
    const own = `${this.#namespace}/`;
    const isNamed = name.startsWith(own)
      ? eq(table.id, name.slice(own.length))
      : eq(sql`${table.registry} ->> 'name'`, name);
    const isPossible = storageProblem([name, version]) === undefined;
    const [row] = await this.#rows(
      [
        isPossible ? isNamed : sql`false`,
        version === undefined || !isPossible ? undefined : eq(VERSION, version),
        includeDeleted ? undefined : eq(table.active, true),
      ],
      1,
    );
    if (row) return this.#shown(row);
    const which = version === undefined ? '' : ` in the version ${quoted(version)}`;
    throw new SwitchboardError(
      'server_not_found',
      `No server has the name ${quoted(name)}${which}. GET /v0.1/servers lists all servers.`,
    );
  }

  #rows(conditions: (SQL | undefined)[], limit: number): Promise<Row[]> {
    return this.#db
      .select(COLUMNS)
      .from(table)
      .leftJoin(
        serverHealth,
        and(eq(serverHealth.serverId, table.id), eq(serverHealth.remoteUrl, table.remoteUrl)),
      )
      .where(and(...conditions))
      .orderBy(asc(table.id))
      .limit(limit);
  }

  #isFoundBy(search: string): SQL | undefined {
    const contains = (text: SQL) => sql`position(lower(${search}) in lower(${text})) > 0`;
    const own = `${this.#namespace}/`;
    const theirs = sql`${table.registry} ->> 'name'`;
    const name = sql`case when ${theirs} is null or starts_with(${theirs}, ${own}) then ${own} || ${table.id} else ${theirs} end`;
    return or(contains(name), contains(sql`${table.name}`));
  }

  #shown(row: Row): object {
    const { registry, active, createdAt, updatedAt } = row;
    const status = active ? (registry?.status ?? 'active') : 'deleted';
    const statusMessage = active ? registry?.statusMessage : undefined;
    return {
      server: { ...(registry ? registry.document : documentOf(row)), name: this.#nameOf(row) },
      _meta: {
        [OFFICIAL]: {
          status,
          ...(statusMessage === undefined ? {} : { statusMessage }),
          publishedAt: registry?.publishedAt ?? createdAt.toISOString(),
          updatedAt: updatedAt.toISOString(),
          isLatest: true,
        },
        [OWN]: {
          id: row.id,
          url: `${this.#publicUrl()}/mcp/${row.id}`,
          description: row.description,
          categories: row.categories,
          tools: row.toolCount,
          sign_in: row.auth.kind,
          ...(registry ? { source: registry.source } : {}),
          ...healthOf(row),
        },
      },
    };
  }

  /** Uses our own name instead of a registry's name in our namespace, so that every name belongs to one server. */
  #nameOf({ id, registry }: Row): string {
    const name = registry?.name;
    return name === undefined || name.startsWith(`${this.#namespace}/`) ? `${this.#namespace}/${id}` : name;
  }
}

const healthOf = ({ health }: Row): { health?: ShownHealth } => {
  if (!health) return {};
  const { state, checkedAt, latencyMs } = health;
  const latency = latencyMs === null ? {} : { latencyMs };
  return { health: shownHealth({ state, checkedAtMs: checkedAt.getTime(), ...latency }) };
};

const VERSION = sql`coalesce(${table.registry} ->> 'version', ${OWN_VERSION})`;

/** Returns the `server.json` of an entry that came from no registry. */
function documentOf({ name, description, remoteUrl, transport, homepage, repository, auth }: Row): object {
  return {
    $schema: SERVER_SCHEMA,
    description: shortened(description),
    title: name.slice(0, 100),
    version: OWN_VERSION,
    ...(homepage === null ? {} : { websiteUrl: homepage }),
    ...(repository === null ? {} : { repository: { url: repository, source: sourceOf(repository) } }),
    remotes: [
      {
        type: transport ?? 'streamable-http',
        url: remoteUrl,
        ...(auth.kind === 'static_header' ? asked(remoteUrl, auth) : {}),
      },
    ],
  };
}

/** Returns what a remote asks for: headers, and variables of its address. */
function asked(remoteUrl: string, auth: AuthSpec): object {
  const { all } = addressVariables(remoteUrl);
  const variables = Object.fromEntries(all.map(name => [name, inputOf(auth.variables?.[name] ?? {})]));
  const headers = takesHeader({ remoteUrl, auth }) ? [KEY_HEADER] : auth.headers?.map(headerOf);
  return { ...(headers ? { headers } : {}), ...(all.length === 0 ? {} : { variables }) };
}

const inputOf = ({ required = true, secret = true, ...input }: CredentialInput) => ({
  ...input,
  isRequired: required,
  isSecret: secret,
});

const headerOf = ({ name, value, variables, ...input }: HeaderSpec) => ({
  name,
  ...(value === undefined ? {} : { value }),
  ...inputOf(input),
  ...(variables
    ? { variables: Object.fromEntries(Object.entries(variables).map(([key, one]) => [key, inputOf(one)])) }
    : {}),
});

const KEY_HEADER = headerOf({
  name: 'Authorization',
  value: 'Bearer {token}',
  description: "An API key from the server's provider. The server's documentation names the header.",
});

function shortened(description: string): string {
  const line = description.replaceAll(/\s+/g, ' ').trim();
  if (line.length <= MAX_DESCRIPTION_CHARS) return line;
  return `${line.slice(0, MAX_DESCRIPTION_CHARS - 1).toWellFormed()}…`;
}

/** Returns the host's name without its domain, such as `github`. */
const sourceOf = (repository: string): string =>
  new URL(repository).hostname.replace(/^www\./, '').split('.')[0] ?? '';

function namespaceOf(publicUrl: string | undefined): string {
  const host = publicUrl === undefined ? '' : new URL(publicUrl).hostname;
  if (!host.includes('.') || isIP(host) !== 0) return 'local.switchboard';
  return host.split('.').toReversed().join('.');
}

/** Limits a time to after 1970, because Postgres has no year 0. */
const sinceEpoch = (time: string): Date => new Date(Math.max(0, Date.parse(time)));

const cursorOf = (id: string): string => Buffer.from(id).toString('base64url');

function idOf(cursor: string): string {
  const id = Buffer.from(cursor, 'base64url').toString();
  if (/^[a-z0-9][a-z0-9._-]{0,127}$/.test(id)) return id;
  throw new SwitchboardError('invalid_request', 'cursor: must be the nextCursor of an earlier page');
}
