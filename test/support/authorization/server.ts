import { gzipSync } from 'node:zlib';
import { listen, readBody } from '../upstreams/http.ts';
import type { Hold, When } from '../holds.ts';
import { Clients, OAuthError, secret, type Client } from './clients.ts';
import { Grants, type Allowed, type Tokens } from './grants.ts';
import { DEFAULTS, type Switches } from './switches.ts';
import { exchangeOf, json, redirect, text, Wire, type Answer, type Exchange, type Fault } from './wire.ts';

type Endpoint = 'metadata' | 'register' | 'authorize' | 'token' | 'revoke' | 'client' | 'other';

export interface AuthorizationServerOptions extends Partial<Switches> {
  /** Of the issuer, such as `/tenant`; default none. */
  readonly path?: string;
  /** The name it goes by: another one than its MCP servers' is a foreign domain. Default 127.0.0.1. */
  readonly host?: string;
}

export interface AuthorizationServer extends AsyncDisposable {
  readonly issuer: string;
  readonly switches: Switches;
  readonly faults: Partial<Record<Endpoint, Fault>>;
  /** Bytes of endless documents that were sent. */
  readonly bytesSent: () => number;
  /** Stops every request to the endpoint, before it is processed or when its answer is ready, until released. */
  hold(endpoint: Endpoint, when: When): Hold;
  /** The requests to an endpoint, whatever became of them. */
  sent(endpoint: Endpoint): Exchange[];
  /** All requests. */
  all(): Exchange[];
  readonly clients: ReadonlyMap<string, Client>;
  /** What is found at the URLs of client ID metadata documents. */
  readonly documents: Map<string, unknown>;
  /** A client that an operator has made by hand. */
  preregister(client: Pick<Client, 'redirect_uris'> & Partial<Client>): Client;
  /** Knows none of the clients any more that have registered. */
  forgetClients(): void;
  /** Makes every access token invalid; refresh tokens stay. */
  expireAccessTokens(): void;
  /** As when users withdraw access in the provider's own settings. */
  endAll(): void;
  introspect(accessToken: string): Allowed | undefined;
  /** Every code, token, client secret and code verifier so far: none may turn up in a log or a database dump. */
  readonly secrets: ReadonlySet<string>;
}

/** A scriptable OAuth authorization server on loopback, which lets every user in. */
export async function startAuthorizationServer({
  path = '',
  host = '127.0.0.1',
  ...switches
}: AuthorizationServerOptions = {}): Promise<AuthorizationServer> {
  const wire = new Wire<Endpoint>();
  const listening = await listen((request, response) => {
    const serve = async () => {
      const exchange = exchangeOf(request, (await readBody(request)).text);
      const endpoint = server.endpointOf(exchange.path);
      await wire.serve(endpoint, exchange, response, () => server.answer(endpoint, exchange));
    };
    // A client may hang up at any point.
    serve().catch(() => response.destroy());
  });
  const issuer = `http://${host}:${listening.port}${path}`;
  const server = new Endpoints(issuer, { ...DEFAULTS, ...switches });
  const { clients, grants, secrets } = server;
  return {
    issuer,
    switches: server.switches,
    faults: wire.faults,
    bytesSent: () => wire.bytesSent,
    hold: (endpoint, when) => wire.holds.hold(endpoint, when),
    sent: endpoint => wire.sent(endpoint),
    all: () => wire.all(),
    clients: clients.known,
    documents: clients.documents,
    preregister(given) {
      const client = { ...server.newClient('client_secret_basic'), ...given };
      clients.add(client);
      return client;
    },
    forgetClients: () => clients.known.clear(),
    expireAccessTokens: () => grants.expireAccessTokens(),
    endAll: () => grants.endAll(),
    introspect: token => grants.introspect(token),
    secrets,
    [Symbol.asyncDispose]: () => listening[Symbol.asyncDispose](),
  };
}

class Endpoints {
  readonly clients = new Clients();
  readonly grants = new Grants();
  readonly secrets = new Set<string>();
  readonly switches: Switches;
  readonly #work: Readonly<Record<Endpoint, (exchange: Exchange) => Answer>> = {
    metadata: () => this.#metadata(),
    register: exchange => this.#register(exchange),
    authorize: exchange => this.#authorize(exchange),
    token: exchange => this.#token(exchange),
    revoke: exchange => this.#revoke(exchange),
    client: exchange => this.#deleteClient(exchange),
    other: () => text(404, 'Not found'),
  };
  readonly #issuer: string;
  readonly #origin: string;
  /** Of the issuer; empty where it has none. */
  readonly #path: string;

  constructor(issuer: string, switches: Switches) {
    this.#issuer = issuer;
    this.switches = switches;
    const { origin, pathname } = new URL(issuer);
    this.#origin = origin;
    this.#path = pathname === '/' ? '' : pathname;
  }

  endpointOf(path: string): Endpoint {
    if (path === this.#metadataPath()) return 'metadata';
    const own = path.slice(this.#path.length);
    if (own.startsWith('/clients/')) return 'client';
    return (
      (['authorize', 'token', 'register', 'revoke'] as const).find(name => own === `/${name}`) ?? 'other'
    );
  }

  answer(endpoint: Endpoint, exchange: Exchange): Answer {
    this.#remember(exchange.fields);
    this.#remember(exchange.query);
    try {
      return this.#work[endpoint](exchange);
    } catch (error) {
      if (!(error instanceof OAuthError)) throw error;
      const heard = this.switches.echo ? ` (${exchange.body} ${exchange.headers.authorization ?? ''})` : '';
      return json(
        error.status,
        { error: error.code, error_description: `${error.message}${heard}` },
        error.status === 401 ? { 'www-authenticate': 'Basic realm="clients"' } : {},
      );
    }
  }

  newClient(method: string): Client {
    const client = {
      client_id: secret('client'),
      ...(method === 'none' ? {} : { client_secret: secret('cs'), client_secret_expires_at: 0 }),
      ...(this.switches.managesClients ? { registration_access_token: secret('rat') } : {}),
      redirect_uris: [],
      token_endpoint_auth_method: method,
    };
    this.#remember(client);
    return client;
  }

  #metadataPath(): string {
    const { metadataAt } = this.switches;
    if (metadataAt === 'appended') return `${this.#path}/.well-known/openid-configuration`;
    const name = metadataAt === 'oauth' ? 'oauth-authorization-server' : 'openid-configuration';
    return `/.well-known/${name}${this.#path}`;
  }

  #metadata(): Answer {
    const { registration, clientDocuments, iss, revocation, metadata, gzip, refresh } = this.switches;
    const at = (name: string) => `${this.#origin}${this.#path}/${name}`;
    const document = {
      issuer: this.#issuer,
      authorization_endpoint: at('authorize'),
      token_endpoint: at('token'),
      ...(registration === 'none' ? {} : { registration_endpoint: at('register') }),
      ...(revocation ? { revocation_endpoint: at('revoke') } : {}),
      ...(clientDocuments ? { client_id_metadata_document_supported: true } : {}),
      ...(iss === 'missing' ? {} : { authorization_response_iss_parameter_supported: true }),
      response_types_supported: ['code'],
      grant_types_supported: ['authorization_code', ...(refresh === 'none' ? [] : ['refresh_token'])],
      code_challenge_methods_supported: ['S256'],
      token_endpoint_auth_methods_supported: ['client_secret_basic', 'client_secret_post', 'none'],
      ...metadata,
    };
    const answer = json(200, document);
    if (!gzip) return answer;
    return {
      ...answer,
      headers: { ...answer.headers, 'content-encoding': 'gzip' },
      body: gzipSync(JSON.stringify(document)),
    };
  }

  #register({ fields }: Exchange): Answer {
    const { registration, registrationStatus, registered, managesClients } = this.switches;
    if (registration === 'none') return text(404, 'Not found');
    if (registration === 'allowlist')
      return text(403, `The client ${String(fields['client_name'])} is not on the list of approved clients.`);
    if (registration === 'unprocessable')
      return json(422, { error: 'invalid_client_metadata', error_description: 'cannot be processed' });
    const { redirect_uris: redirectUris = [], token_endpoint_auth_method: method = 'client_secret_basic' } =
      fields;
    const made = { ...this.newClient(method), redirect_uris: redirectUris };
    const answer: Record<string, unknown> = {
      ...made,
      client_name: fields['client_name'],
      grant_types: fields['grant_types'],
      ...(managesClients
        ? { registration_client_uri: `${this.#origin}${this.#path}/clients/${made.client_id}` }
        : {}),
      ...registered,
    };
    // What it says of the client is how it will be: a method or an expiry that a test has put there holds.
    this.clients.add({ ...made, ...answer });
    return json(registrationStatus, answer);
  }

  #deleteClient({ method, path, headers }: Exchange): Answer {
    const client = this.clients.known.get(path.slice(path.lastIndexOf('/') + 1));
    if (!client || headers.authorization !== `Bearer ${client.registration_access_token}`)
      return json(401, { error: 'invalid_token' });
    if (method !== 'DELETE') return text(405, 'Not allowed');
    this.clients.known.delete(client.client_id);
    return { status: 204 };
  }

  #authorize({ query }: Exchange): Answer {
    const { forwardsTo, asks, denies } = this.switches;
    if (forwardsTo) {
      const { issuer, clientId } = forwardsTo;
      const on = new URLSearchParams({ ...query, client_id: clientId });
      return redirect(`${issuer}/authorize?${on.toString()}`);
    }
    const client = this.clients.named(query['client_id']);
    const { redirect_uri: redirectUri = '' } = query;
    // RFC 6749, section 4.1.2.1: never to an address that is not the client's.
    if (!client.redirect_uris.includes(redirectUri))
      return text(400, `This address is not registered: ${redirectUri}`);
    const { decision, ...request } = query;
    if (asks && decision === undefined) return askingPage(request);
    const back = (members: Record<string, string>) => this.#sendBack(redirectUri, query['state'], members);
    if (denies || decision === 'deny') return back({ error: 'access_denied', error_description: 'No.' });
    const refusal = this.#refusalOf(query);
    if (refusal) return back({ error: refusal.code, error_description: refusal.message });
    const code = this.grants.authorize({
      clientId: client.client_id,
      redirectUri,
      challenge: query['code_challenge'] ?? '',
      scopes: this.switches.grantedScopes ?? scopesIn(query[this.switches.scopeParameter]),
      resource: query['resource'],
    });
    this.secrets.add(code);
    return back({ code });
  }

  #refusalOf(query: Exchange['query']): OAuthError | undefined {
    const { resource, refusedScopes, scopeParameter } = this.switches;
    if (query['response_type'] !== 'code') return new OAuthError('unsupported_response_type', 'code only');
    if (query['code_challenge_method'] !== 'S256' || !query['code_challenge'])
      return new OAuthError('invalid_request', 'PKCE with S256 is required');
    if (resource === 'required' && query['resource'] === undefined)
      return new OAuthError('invalid_target', 'a resource is required');
    if (resource === 'refused' && query['resource'] !== undefined)
      return new OAuthError('invalid_target', 'the resource does not match the requested scopes');
    const refused = scopesIn(query[scopeParameter]).find(scope => refusedScopes.includes(scope));
    return refused === undefined ? undefined : new OAuthError('invalid_scope', `no such scope: ${refused}`);
  }

  #sendBack(redirectUri: string, state: string | undefined, members: Record<string, string>): Answer {
    const { iss, callback } = this.switches;
    const url = new URL(redirectUri);
    const issuer = iss === 'correct' ? this.#issuer : iss;
    const all = {
      ...members,
      ...(state === undefined ? {} : { state }),
      ...(iss === 'missing' ? {} : { iss: issuer }),
      ...callback,
    };
    for (const [name, value] of Object.entries(all)) url.searchParams.set(name, value);
    return redirect(url);
  }

  #token(exchange: Exchange): Answer {
    const { refusesBasic, expiresIn, tokenAnswer } = this.switches;
    const client = this.clients.authenticated(exchange, refusesBasic);
    const tokens = this.#tokensFor(client, exchange.fields);
    const answer = {
      ...tokens,
      token_type: 'Bearer',
      ...(expiresIn === undefined ? {} : { expires_in: expiresIn }),
      ...tokenAnswer,
    };
    this.#remember(answer);
    return json(200, answer);
  }

  #tokensFor(client: Client, fields: Exchange['fields']): Tokens {
    const { refresh } = this.switches;
    if (fields['grant_type'] === 'refresh_token' && refresh !== 'none') {
      this.#checkResource(this.grants.resourceOf(fields['refresh_token']), fields['resource']);
      return this.grants.refresh(fields['refresh_token'], client, refresh);
    }
    if (fields['grant_type'] !== 'authorization_code')
      throw new OAuthError('unsupported_grant_type', String(fields['grant_type']));
    const { code = '', redirect_uri: redirectUri = '', code_verifier: verifier = '' } = fields;
    const tokens = this.grants.redeem(code, client, redirectUri, verifier, refresh);
    this.#checkResource(this.grants.introspect(tokens.access_token)?.resource, fields['resource']);
    return tokens;
  }

  /** RFC 8707, section 2.2: what is requested here must be among what was authorized. */
  #checkResource(authorized: string | undefined, requested: string | undefined): void {
    const { resource } = this.switches;
    if (resource === 'ignored') return;
    if (resource === 'refused' && requested !== undefined)
      throw new OAuthError('invalid_target', 'the resource does not match the requested scopes');
    if ((resource === 'required' || requested !== undefined) && requested !== authorized)
      throw new OAuthError('invalid_target', 'another resource than was authorized');
  }

  #revoke(exchange: Exchange): Answer {
    this.clients.authenticated(exchange, this.switches.refusesBasic);
    this.grants.revoke(exchange.fields['token']);
    return { status: 200 };
  }

  #remember(members: Readonly<Record<string, unknown>>): void {
    for (const name of SECRETS) {
      const value = members[name];
      if (typeof value === 'string' && value !== '') this.secrets.add(value);
    }
  }
}

const SECRETS = [
  'access_token',
  'refresh_token',
  'code',
  'code_verifier',
  'client_secret',
  'registration_access_token',
];

const scopesIn = (scopes = ''): string[] => scopes.split(' ').filter(scope => scope !== '');

const askingPage = (query: Exchange['query']): Answer => {
  const link = (decision: string, label: string) =>
    `<a href="?${new URLSearchParams({ ...query, decision }).toString().replaceAll('&', '&amp;')}">${label}</a>`;
  return {
    status: 200,
    headers: { 'content-type': 'text/html' },
    body: `<!doctype html><title>Sign in</title><h1>Allow it?</h1><p>${link('allow', 'Allow')} ${link('deny', 'Deny')}</p>`,
  };
};
