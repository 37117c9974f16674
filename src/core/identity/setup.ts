import { and, desc, isNotNull, isNull } from 'drizzle-orm';
import type { Config } from '../../config/index.ts';
import type { ServerHead } from '../catalogue/entry.ts';
import type { IdentityContext } from './context.ts';
import type { ServerAuthorization } from './oauth/server-authorization.ts';
import { oauthClients } from './schema.ts';

/** How many of a list are shown; the count tells how many there are. */
const MAX_SHOWN = 200;
const MAX_SERVERS = 20;

/** Servers for which the same has to be done. */
export interface Concerned {
  readonly count: number;
  /** Some of their ids. */
  readonly servers: readonly string[];
}

/** Switchboard as a client of an authorization server. */
export interface ShownClient {
  readonly issuer: string;
  /** `setting`: from SWITCHBOARD_OAUTH_CLIENTS. `registered`: by Switchboard itself. */
  readonly source: 'setting' | 'registered';
  readonly client_id: string;
  readonly redirect_uri: string;
  /** The number of servers that sign users in there. */
  readonly servers: number;
  readonly created_at: string | null;
}

export interface ShownSetup {
  readonly public_url: string;
  readonly client_metadata_url: string | null;
  readonly return_url: string;
  readonly oauth_clients: readonly ShownClient[];
  readonly oauth_needed: readonly (Concerned & { readonly issuer: string; readonly redirect_uri: string })[];
  readonly providers: readonly {
    readonly name: string;
    readonly title: string;
    readonly is_configured: boolean;
    readonly issuer: string | null;
    readonly redirect_uri: string;
    readonly allowed_origins: readonly string[];
    readonly servers: number;
  }[];
  readonly providers_missing: readonly (Concerned & { readonly name: string })[];
  readonly origins_missing: readonly (Concerned & { readonly provider: string; readonly origin: string })[];
}

interface Parts {
  readonly context: IdentityContext;
  readonly config: Config['identity'];
  readonly authorization: ServerAuthorization;
}

/** What is set up for sign-ins, and what the servers of a catalogue need besides. */
export class Setup {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

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
      oauth_needed: shownGroups(found.oauth).map(([issuer, concerned]) => ({
        issuer,
        redirect_uri: clients.redirectUri(issuer),
        ...concerned,
      })),
      providers: [...config.providers.values()].map(({ name, title, client, issuer, allowedOrigins }) => ({
        name,
        title,
        is_configured: client !== undefined,
        issuer: issuer ?? null,
        redirect_uri: `${publicUrl}/oauth/callback/${name}`,
        allowed_origins: allowedOrigins,
        servers: found.ofProviders.get(name)?.length ?? 0,
      })),
      providers_missing: shownGroups(found.providers).map(([name, concerned]) => ({ name, ...concerned })),
      origins_missing: shownGroups(found.origins).map(([both, concerned]) => {
        const [provider = '', origin = ''] = both.split(' ');
        return { provider, origin, ...concerned };
      }),
    };
  }

  /** Finds what servers need that is not set up: ids of servers by issuer, provider, or provider and origin. */
  needs(servers: Iterable<ServerHead>) {
    const { context, authorization } = this.#parts;
    const found = {
      ofIssuers: new Map<string, string[]>(),
      ofProviders: new Map<string, string[]>(),
      oauth: new Map<string, string[]>(),
      providers: new Map<string, string[]>(),
      origins: new Map<string, string[]>(),
    };
    for (const { id, auth, learned, remoteUrl } of servers) {
      const issuer = learned?.issuer ?? auth.issuer;
      if (issuer !== undefined) add(found.ofIssuers, issuer, id);
      if (learned?.needsSetup && issuer !== undefined && !authorization.isSetUp(issuer))
        add(found.oauth, issuer, id);
      if (auth.kind !== 'user_oauth' || auth.provider === undefined) continue;
      add(found.ofProviders, auth.provider, id);
      const provider = context.providers.get(auth.provider);
      const { origin } = new URL(remoteUrl);
      if (!provider) add(found.providers, auth.provider, id);
      else if (!provider.settings.allowedOrigins.includes(origin))
        add(found.origins, `${auth.provider} ${origin}`, id);
    }
    return found;
  }

  async #clients(ofIssuers: ReadonlyMap<string, readonly string[]>): Promise<ShownClient[]> {
    const { context, config, authorization } = this.#parts;
    const servers = (issuer: string) => ofIssuers.get(issuer)?.length ?? 0;
    const configured = [...config.oauth.clients].map(([issuer, { id }]) => ({
      issuer,
      source: 'setting' as const,
      client_id: id,
      redirect_uri: authorization.clients.redirectUri(issuer),
      servers: servers(issuer),
      created_at: null,
    }));
    const rows = await context.db
      .select()
      .from(oauthClients)
      .where(and(isNull(oauthClients.retiredAt), isNotNull(oauthClients.clientId)))
      .orderBy(desc(oauthClients.createdAt))
      .limit(MAX_SHOWN);
    const registered = rows.map(({ issuer, clientId, redirectUri, createdAt }) => ({
      issuer,
      source: 'registered' as const,
      client_id: clientId ?? '',
      redirect_uri: redirectUri,
      servers: servers(issuer),
      created_at: createdAt.toISOString(),
    }));
    return [...configured, ...registered];
  }
}

function add(groups: Map<string, string[]>, name: string, id: string): void {
  const group = groups.get(name);
  if (group) group.push(id);
  else groups.set(name, [id]);
}

/** The largest groups first. */
const shownGroups = (groups: ReadonlyMap<string, readonly string[]>): [string, Concerned][] =>
  [...groups]
    .toSorted(([, one], [, other]) => other.length - one.length)
    .slice(0, MAX_SHOWN)
    .map(([name, ids]) => [name, { count: ids.length, servers: ids.slice(0, MAX_SERVERS) }]);
