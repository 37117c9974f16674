import { and, desc, isNotNull, isNull, sql } from 'drizzle-orm';
import type { Config } from '../../config/index.ts';
import type { ServerHead } from '../catalogue/entry.ts';
import type { Provider } from './connections/provider.ts';
import type { IdentityContext } from './context.ts';
import type { AuthMethod, StoredClient } from './oauth/client.ts';
import type { ServerAuthorization } from './oauth/server-authorization.ts';
import { oauthClients } from './schema.ts';

/** The maximum length of each list. */
const MAX_SHOWN = 200;
/** The maximum number of servers, or of their origins, that are named in one element of a list. */
const MAX_SERVERS = 20;

/** Servers that lack the same. */
interface Concerned {
  readonly count: number;
  /** Some of their ids. */
  readonly servers: readonly string[];
}

/** Switchboard as a client of an authorization server. */
interface ShownClient {
  readonly issuer: string;
  /** `setting`: from SWITCHBOARD_OAUTH_CLIENTS. `entered`: by an operator. `registered`: by Switchboard itself. */
  readonly source: 'setting' | 'entered' | 'registered';
  readonly client_id: string;
  readonly redirect_uri: string;
  readonly has_secret: boolean;
  /** null: the best that the authorization server supports. */
  readonly token_auth_method: AuthMethod | null;
  /** Scopes of every sign-in. */
  readonly scopes: readonly string[];
  /** The number of servers that sign users in there. */
  readonly servers: number;
  /** Origins of servers of other domains that may receive its tokens. */
  readonly allowed_origins: readonly string[];
  readonly created_at: string | null;
}

/** The set-up for sign-ins, for an operator. */
interface ShownSetup {
  readonly public_url: string;
  /** Where Switchboard describes itself to authorization servers; null if they could not fetch it. */
  readonly client_metadata_url: string | null;
  /** The beginning of the redirect URIs of OAuth clients. */
  readonly return_url: string;
  readonly oauth_clients: readonly ShownClient[];
  /** Authorization servers that let no client register itself, and of which no client is known. */
  readonly oauth_needed: readonly (Concerned & {
    readonly issuer: string;
    readonly redirect_uri: string;
    /** Some origins of the servers. */
    readonly origins: readonly string[];
  })[];
  /** The identity providers that are known by name. */
  readonly providers: readonly {
    readonly name: string;
    readonly title: string;
    readonly is_configured: boolean;
    readonly issuer: string | null;
    readonly redirect_uri: string;
    readonly allowed_origins: readonly string[];
    readonly servers: number;
  }[];
  /** Identity providers that servers name and that the settings do not have. */
  readonly providers_missing: readonly (Concerned & { readonly name: string })[];
  /** Origins of servers to which their identity provider's tokens may not be sent. */
  readonly origins_missing: readonly (Concerned & { readonly provider: string; readonly origin: string })[];
}

interface Parts {
  readonly context: IdentityContext;
  readonly config: Config['identity'];
  readonly authorization: ServerAuthorization;
}

/** Shows operators the set-up for sign-ins, and what the servers of a catalogue need besides. */
export class Setup {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Returns the set-up, and what the servers lack. */
  async show(servers: Iterable<ServerHead>): Promise<ShownSetup> {
    const { context, config, authorization } = this.#parts;
    const { clients } = authorization;
    const found = this.needs(servers);
    const publicUrl = context.publicUrl();
    return {
      public_url: publicUrl,
      client_metadata_url: clients.metadataUrl() ?? null,
      return_url: clients.returnUri(),
      oauth_clients: await this.#clients(found.ofIssuers),
      oauth_needed: largest(found.oauth).map(([issuer, group]) =>
        Object.assign(concerned(group), {
          issuer,
          redirect_uri: clients.redirectUri(issuer),
          origins: originsOf(group),
        }),
      ),
      providers: [...config.providers.values()].map(({ name, title, client, issuer, allowedOrigins }) => ({
        name,
        title,
        is_configured: client !== undefined,
        issuer: issuer ?? null,
        redirect_uri: `${publicUrl}/oauth/callback/${name}`,
        allowed_origins: allowedOrigins,
        servers: found.ofProviders.get(name)?.length ?? 0,
      })),
      providers_missing: largest(found.providers).map(([name, group]) =>
        Object.assign(concerned(group), { name }),
      ),
      origins_missing: largest(found.origins).map(([both, group]) => {
        const [provider = '', origin = ''] = both.split(' ');
        return Object.assign(concerned(group), { provider, origin });
      }),
    };
  }

  /**
   * Groups servers by what they sign in with, and by what they lack. `ofIssuers` and `ofProviders` have all, by issuer and by provider;
   * `oauth`, `providers` and `origins` those that lack a client, a provider, or an allowed origin (by `<provider> <origin>`).
   */
  needs(servers: Iterable<ServerHead>) {
    const { context, authorization } = this.#parts;
    const found = {
      ofIssuers: new Map<string, ServerHead[]>(),
      ofProviders: new Map<string, ServerHead[]>(),
      oauth: new Map<string, ServerHead[]>(),
      providers: new Map<string, ServerHead[]>(),
      origins: new Map<string, ServerHead[]>(),
    };
    for (const server of servers) {
      const { auth, learned } = server;
      const issuer = learned?.issuer ?? auth.issuer;
      if (issuer !== undefined) {
        add(found.ofIssuers, issuer, server);
        if (learned?.needsSetup && !authorization.isSetUp(issuer)) add(found.oauth, issuer, server);
      }
      if (auth.kind !== 'user_oauth' || auth.provider === undefined) continue;
      add(found.ofProviders, auth.provider, server);
      const lacks = lackOf(server, context.providers.get(auth.provider));
      if (lacks !== undefined) add(found[lacks.what], lacks.name, server);
    }
    return found;
  }

  /** Lists the clients of the settings and those that are stored, with the number of servers that use each. */
  async #clients(ofIssuers: ReadonlyMap<string, readonly unknown[]>): Promise<ShownClient[]> {
    const { context, config, authorization } = this.#parts;
    const servers = (issuer: string) => ofIssuers.get(issuer)?.length ?? 0;
    const configured = [...config.oauth.clients].map(([issuer, client]) =>
      Object.assign(settingsOf(client), {
        issuer,
        source: 'setting' as const,
        client_id: client.id,
        redirect_uri: authorization.clients.redirectUri(issuer),
        servers: servers(issuer),
        created_at: null,
      }),
    );
    // Clients of an earlier PUBLIC_URL are not used.
    const isCurrent = sql`starts_with(${oauthClients.redirectUri}, ${`${authorization.clients.returnUri()}/`})`;
    const rows = await context.db
      .select()
      .from(oauthClients)
      .where(and(isNull(oauthClients.retiredAt), isNotNull(oauthClients.clientId), isCurrent))
      .orderBy(desc(oauthClients.byOperator), desc(oauthClients.createdAt))
      .limit(MAX_SHOWN);
    const stored = rows.map(async row =>
      Object.assign(settingsOf(await authorization.clients.settingsOf(row)), {
        issuer: row.issuer,
        source: row.byOperator ? ('entered' as const) : ('registered' as const),
        client_id: row.clientId ?? '',
        redirect_uri: row.redirectUri,
        servers: servers(row.issuer),
        created_at: row.createdAt.toISOString(),
      }),
    );
    return [...configured, ...(await Promise.all(stored))];
  }
}

const settingsOf = ({ secret, authMethod, scopes = [], allowedOrigins = [] }: StoredClient) => ({
  has_secret: secret !== undefined,
  token_auth_method: authMethod ?? null,
  scopes,
  allowed_origins: allowedOrigins,
});

/** Returns what a server with an identity provider lacks, as a group of `needs` and its name in it; undefined: nothing. */
function lackOf(
  { auth: { provider: name = '' }, remoteUrl }: ServerHead,
  provider: Provider | undefined,
): { readonly what: 'providers' | 'origins'; readonly name: string } | undefined {
  if (!provider) return { what: 'providers', name };
  const { origin } = new URL(remoteUrl);
  return provider.settings.allowedOrigins.includes(origin)
    ? undefined
    : { what: 'origins', name: `${name} ${origin}` };
}

function add(groups: Map<string, ServerHead[]>, name: string, server: ServerHead): void {
  const group = groups.get(name);
  if (group) group.push(server);
  else groups.set(name, [server]);
}

/** Returns the largest groups, the largest one first. */
const largest = (groups: ReadonlyMap<string, readonly ServerHead[]>) =>
  [...groups].toSorted(([, one], [, other]) => other.length - one.length).slice(0, MAX_SHOWN);

const concerned = (group: readonly ServerHead[]): Concerned => ({
  count: group.length,
  servers: group.slice(0, MAX_SERVERS).map(({ id }) => id),
});

const originsOf = (group: readonly ServerHead[]): string[] =>
  [...new Set(group.map(({ remoteUrl }) => new URL(remoteUrl).origin))].slice(0, MAX_SERVERS);
