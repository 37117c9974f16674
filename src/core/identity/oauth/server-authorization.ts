import { getDomain } from 'tldts';
import type { OAuthConfig } from '../../../config/index.ts';
import { askOperator, SwitchboardError } from '../../../errors.ts';
import { whyUnreached, type GuardedFetch } from '../../../platform/outbound/fetch.ts';
import type { Guard } from '../../../platform/outbound/guard.ts';
import { whyFailed } from '../../../platform/database/database.ts';
import type { LearnedAccess, ServerHead } from '../../catalogue/entry.ts';
import type { Actor } from '../../access/audit.ts';
import type { IdentityContext } from '../context.ts';
import { ProviderError } from '../connections/provider.ts';
import { AuthorizationServer } from './authorization-server.ts';
import type { Client, IssuedTo, EnteredClient, SignInClient } from './client.ts';
import type { Challenge } from './challenge.ts';
import { Clients, RegistrationRefused } from './clients.ts';
import { Discovery, type Discovered } from './discovery.ts';
import { MetadataError, type IssuerMetadata } from './metadata.ts';

/** A sign-in with a server's own authorization server, ready to begin. */
export interface ServerSignIn {
  readonly scopes: readonly string[];
  readonly issuedTo: IssuedTo;
  /** The address that the authorization server sends the browser back to. */
  readonly redirectUri: string;
  /** Returns the address of the authorization server's page. */
  readonly authorizationUrl: (proof: {
    readonly state: string;
    readonly verifier: string;
  }) => Promise<string>;
}

/** The purpose of a sign-in. */
interface Wanted {
  /** Scopes that the user has granted before, and keeps. */
  readonly held?: readonly string[];
  /** The server's latest challenge. */
  readonly challenge?: Challenge | undefined;
  /** True if somebody has just asked to connect the server: earlier findings may be out of date. */
  readonly isAsked?: boolean;
  /** True if the operator connects the server, and so vouches for its authorization server. */
  readonly byOperator?: boolean;
}

type OnLearned = (server: ServerHead, learned: LearnedAccess) => Promise<void>;

interface Options {
  readonly context: IdentityContext;
  readonly config: OAuthConfig;
  readonly fetch: GuardedFetch;
  readonly guard: Pick<Guard, 'check'>;
}

/** Sign-ins at the authorization servers of MCP servers, where Switchboard is the OAuth client (MCP, Authorization). */
export class ServerAuthorization {
  readonly clients: Clients;
  readonly #context: IdentityContext;
  readonly #config: OAuthConfig;
  readonly #fetch: GuardedFetch;
  readonly #discovery: Discovery;
  #onLearned: OnLearned = () => Promise.resolve();

  constructor({ context, config, fetch, guard }: Options) {
    this.#context = context;
    this.#config = config;
    this.#fetch = fetch;
    this.clients = new Clients(context, config, fetch);
    this.#discovery = new Discovery({ fetch, guard, clock: context.clock, log: context.log });
  }

  /** Returns whether the operator has allowed an issuer, or registered a client there. */
  isSetUp(issuer: string | undefined): boolean {
    const { clients, issuers } = this.#config;
    return issuers.has('*') || (issuer !== undefined && (clients.has(issuer) || issuers.has(issuer)));
  }

  /** Stores a client that the operator has registered with an issuer. The servers that sign users in there can be tried again. */
  async enterClient(
    actor: Partial<Actor>,
    issuer: string,
    { client, servers }: { readonly client: EnteredClient; readonly servers: Iterable<ServerHead> },
  ): Promise<void> {
    await this.clients.enter(actor, issuer, client);
    for (const server of servers) {
      if (server.learned?.issuer !== issuer || server.learned.needsSetup !== true) continue;
      const { needsSetup: _done, ...learned } = server.learned;
      await this.#show(server, learned);
    }
  }

  /** Calls the listener with what a server has shown of its access. */
  onLearned(listener: OnLearned): void {
    this.#onLearned = listener;
  }

  /**
   * Learns from a server's 401 how it lets callers in.
   * @returns undefined if that cannot be found out now
   */
  async learn(server: ServerHead, challenge: Challenge): Promise<'oauth' | 'credentials' | undefined> {
    try {
      const { metadata } = await this.#discovery.of(server, challenge);
      const { issuer } = metadata;
      const needsSetup = server.learned?.issuer === issuer && server.learned.needsSetup === true;
      const setup = needsSetup ? { needsSetup } : {};
      await this.#show(server, { kind: 'oauth', issuer, ...shownIn(challenge), ...setup });
      return 'oauth';
    } catch (error) {
      if (!(error instanceof MetadataError)) throw error;
      if (error.reason === 'absent') {
        await this.#show(server, { kind: 'credentials' });
        return 'credentials';
      }
      // A server that wants a key may fail to answer at the well-known places.
      if (error.reason === 'unavailable' && challenge.resourceMetadata === undefined) return undefined;
      throw await this.#explained(error, server);
    }
  }

  /**
   * Prepares a sign-in: finds the authorization server, and registers Switchboard there if necessary.
   * @returns undefined if the server has no authorization server
   * @throws SwitchboardError `operator_setup_needed`, `provider_unavailable`; `upstream_protocol` for metadata that must not be used
   */
  async prepare(server: ServerHead, wanted: Wanted = {}) {
    const { held = [], byOperator = false } = wanted;
    try {
      const { found, scopes } = await this.#needed(server, wanted);
      const { metadata } = found;
      const client = await this.#clientFor(server, metadata, byOperator);
      const learned = { kind: 'oauth', issuer: metadata.issuer, ...shownIn(found.challenge) } as const;
      await this.#show(server, learned);
      return this.#signIn(server, found, client, [...held, ...scopes]);
    } catch (error) {
      if (error instanceof MetadataError && error.reason === 'absent') return undefined;
      if (error instanceof RegistrationRefused || error instanceof SetupNeeded) {
        const { issuer } = error;
        await this.#show(server, { ...server.learned, kind: 'oauth', issuer, needsSetup: true });
      }
      throw this.#explained(error, server);
    }
  }

  /** Finds the authorization server, and the scopes to ask for. */
  async #needed(server: ServerHead, { challenge, isAsked = false }: Wanted) {
    const found = await this.#discovery.of(server, challenge, isAsked);
    // Whoever lacks scopes at one call needs these, and keeps what is granted.
    const scopes = challenge?.error === 'insufficient_scope' ? (challenge.scopes ?? []) : found.scopes;
    return { found, scopes };
  }

  #signIn(
    { auth }: ServerHead,
    { metadata, resource }: Discovered,
    client: SignInClient,
    scopes: readonly string[],
  ): ServerSignIn {
    const wanted = [...new Set([...scopes, ...(client.scopes ?? [])])];
    // SEP-2207: a refresh token is asked for only where the authorization server lists its scope.
    const isOffered = wanted.length > 0 && metadata.scopes_supported?.includes('offline_access') === true;
    const asked = isOffered && !wanted.includes('offline_access') ? [...wanted, 'offline_access'] : wanted;
    const issuer = this.#issuer(metadata, client, resource, auth.token_host);
    const quirks = { scopeParam: auth.scope_param, authorizeParams: auth.authorize_params };
    const { redirectUri } = client;
    return {
      scopes: asked,
      issuedTo: issuer.issuedTo,
      redirectUri,
      authorizationUrl: proof => issuer.authorizationUrl({ ...proof, redirectUri, scopes: asked, quirks }),
    };
  }

  /**
   * Returns the authorization server that issued tokens, to refresh or revoke them, or to complete a sign-in.
   * @throws MetadataError; ProviderError `invalid_grant` if our client there is gone
   */
  async at(issuedTo: IssuedTo): Promise<AuthorizationServer> {
    const metadata = await this.#discovery.issuer(issuedTo.issuer);
    const client = await this.clients.named(issuedTo, metadata);
    if (!client) {
      const gone = new Error(`the client at ${issuedTo.issuer} no longer exists`);
      throw new ProviderError('invalid_grant', gone);
    }
    return this.#issuer(metadata, client, issuedTo.resource, issuedTo.tokenHost);
  }

  /** Returns whether a server that refused a token still names its issuer. True unless it names another. */
  async stillNames(server: ServerHead, issuer: string, challenge: Challenge): Promise<boolean> {
    try {
      const { metadata } = await this.#discovery.of(server, challenge, true);
      return metadata.issuer === issuer;
    } catch (error) {
      if (error instanceof MetadataError) return true;
      throw error;
    }
  }

  #issuer(
    metadata: IssuerMetadata,
    client: Client,
    resource: string,
    tokenHost?: string,
  ): AuthorizationServer {
    return new AuthorizationServer({
      metadata,
      client,
      resource,
      tokenHost,
      fetch: this.#fetch,
      onUnknownClient: name => this.clients.retire(name),
    });
  }

  /** @throws SwitchboardError `operator_setup_needed`; RegistrationRefused */
  async #clientFor(server: ServerHead, metadata: IssuerMetadata, byOperator: boolean): Promise<SignInClient> {
    const { issuer } = metadata;
    const { issuers } = this.#config;
    const configured = await this.clients.ofOperator(issuer);
    // Also the page itself: metadata may send users to an authorization server that knows nothing of this issuer.
    const isForeign = [issuer, metadata.authorization_endpoint].some(address =>
      isOfAnotherDomain(address, server.remoteUrl),
    );
    const { origin } = new URL(server.remoteUrl);
    const isNamed = configured?.allowedOrigins.includes(origin) === true;
    if (configured && isForeign && !isNamed) {
      throw new SetupNeeded(
        server,
        issuer,
        `its OAuth client may not be used for ${origin}.`,
        "add that origin to the client's allowed_origins.",
      );
    }
    const isTrusted = isNamed || server.auth.issuer === issuer || issuers.has(issuer) || issuers.has('*');
    // Otherwise a hostile entry could collect tokens of an authorization server that ignores the resource.
    if (isForeign && !isTrusted && !byOperator) {
      throw new SetupNeeded(
        server,
        issuer,
        'that issuer or its sign-in page is in a different domain than the server.',
        'add it to SWITCHBOARD_OAUTH_ISSUERS, if it is known to belong to the server.',
      );
    }
    requireFixedHost(server, issuer, configured);
    return this.#knownClient(metadata, server.auth.token_auth_method);
  }

  /**
   * Returns the client for a sign-in. A registration that the authorization server has forgotten would show users an error page of
   * its own, so that it is checked now and then.
   */
  async #knownClient(
    metadata: IssuerMetadata,
    authMethod: Client['authMethod'] | undefined,
  ): Promise<SignInClient> {
    const client = await this.clients.for(metadata, authMethod);
    if (!this.clients.isDue(client)) return client;
    const isKnown = await this.#issuer(metadata, client, '').knowsClient(client.redirectUri);
    if (isKnown) return client;
    await this.clients.retire(client);
    return this.clients.for(metadata, authMethod);
  }

  #explained(error: unknown, server: ServerHead): unknown {
    if (error instanceof SwitchboardError) return error;
    if (error instanceof RegistrationRefused) {
      const { issuer } = error;
      const redirectUri = this.clients.redirectUri(issuer);
      return new SetupNeeded(
        server,
        issuer,
        `${error.reason === 'none' ? 'it offers no registration that Switchboard can use' : 'it refused to register Switchboard (it may accept only pre-approved clients)'}.`,
        `create an OAuth client there with the redirect URI ${redirectUri} and enter it in the console, or add it to SWITCHBOARD_OAUTH_CLIENTS.`,
        { redirect_uri: redirectUri },
      );
    }
    const { id } = server;
    if (error instanceof MetadataError && error.reason === 'invalid')
      return new SwitchboardError(
        'upstream_protocol',
        `The server ${id} requires a sign-in, but its authorization metadata is not trustworthy. ${error.message}`,
        { cause: error },
      );
    this.#context.log.warn({ err: error, serverId: id }, "a server's authorization server cannot be reached");
    const why =
      error instanceof MetadataError
        ? error.message
        : `Its authorization server could not be asked: ${whyUnreached(error)}.`;
    return new SwitchboardError(
      'provider_unavailable',
      `Cannot start a sign-in to the server ${id}. ${why} Try again later.`,
      { retryAfterSec: 15, cause: error },
    );
  }

  /**
   * Passes on what a server has shown. Only what matters to searches makes news: challenges may differ from call to call. What
   * cannot be stored must not fail a call.
   */
  async #show(server: ServerHead, learned: LearnedAccess): Promise<void> {
    const { kind, issuer, needsSetup = false } = server.learned ?? {};
    if (kind === learned.kind && issuer === learned.issuer && needsSetup === (learned.needsSetup ?? false))
      return;
    await this.#onLearned(server, learned).catch((error: unknown) =>
      this.#context.log.warn({ ...whyFailed(error), serverId: server.id }, 'failed to store learned access'),
    );
  }
}

const shownIn = ({ scopes, resourceMetadata }: Challenge) => ({
  ...(scopes === undefined ? {} : { scopes }),
  ...(resourceMetadata === undefined ? {} : { resourceMetadata }),
});

/** Returns whether two addresses belong to different registrable domains, or hosts where there is no such domain. */
export function isOfAnotherDomain(one: string, other: string): boolean {
  const domainOf = (address: string) => {
    const { hostname } = new URL(address);
    return getDomain(hostname, { allowPrivateDomains: true }) ?? hostname;
  };
  return domainOf(one) !== domainOf(other);
}

/** Refuses to send the secret of an operator's client to a host that a user names. @throws SetupNeeded */
function requireFixedHost(
  server: ServerHead,
  issuer: string,
  client: { readonly secret: string | undefined } | undefined,
): void {
  if (client?.secret === undefined || server.auth.token_host === undefined) return;
  throw new SetupNeeded(
    server,
    issuer,
    "its OAuth client has a secret, which would go to the host that a user's callback names.",
    "use a client without a secret there, or remove token_host from the server's catalogue entry.",
  );
}

/** The operator must do something before anybody can sign in to a server. */
class SetupNeeded extends SwitchboardError {
  readonly issuer: string;

  /** @param action advice for the operator, as of `askOperator` */
  constructor(
    { id }: ServerHead,
    issuer: string,
    why: string,
    action: string,
    members: Readonly<Record<string, unknown>> = {},
  ) {
    super('operator_setup_needed', `The server ${id} signs users in with ${issuer}, and ${why}`, {
      advice: askOperator(action),
      members: { kind: 'oauth', server_id: id, issuer, ...members },
    });
    this.issuer = issuer;
  }
}
