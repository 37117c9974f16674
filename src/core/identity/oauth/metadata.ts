import { z } from 'zod';
import { whyUnreached, type GuardedFetch } from '../../../platform/outbound/fetch.ts';
import type { Guard } from '../../../platform/outbound/guard.ts';
import { scopeNames } from './challenge.ts';
import { AUTH_METHODS } from './client.ts';

/** Metadata could not be used. */
export class MetadataError extends Error {
  override readonly name = 'MetadataError';
  /** `absent`: nothing is published. `invalid`: what is published must not be used. `unavailable`: nobody answered in time. */
  readonly reason: 'absent' | 'invalid' | 'unavailable';

  constructor(reason: MetadataError['reason'], what: string, cause?: unknown) {
    super(what, { cause });
    this.reason = reason;
  }
}

/** The protected resource metadata of a server (RFC 9728). */
export interface ResourceMetadata {
  /** The issuer exactly as published, because requests repeat it verbatim. */
  readonly resource: string;
  /** Identifiers of authorization servers, in the server's order. */
  readonly issuers: readonly string[];
  readonly scopes: readonly string[] | undefined;
}

/** Addresses and identifiers end up in errors and logs, so that nothing but visible ASCII is taken. */
const url = z
  .string()
  .max(2_048)
  .regex(/^[\x21-\x7e]+$/);
const names = z.array(z.unknown());

const resourceSchema = z.object({
  resource: url.optional(),
  authorization_servers: z.array(url).optional(),
  scopes_supported: names.optional(),
});

/** Metadata of an authorization server (RFC 8414, OpenID Connect Discovery). What is not used here is dropped, as it is kept in memory. */
const issuerSchema = z.object({
  issuer: url,
  authorization_endpoint: url,
  token_endpoint: url,
  registration_endpoint: url.optional(),
  revocation_endpoint: url.optional(),
  jwks_uri: url.optional(),
  scopes_supported: names
    .transform(list => list.filter(name => name === 'offline_access').slice(0, 1))
    .optional(),
  token_endpoint_auth_methods_supported: names
    .transform(list => AUTH_METHODS.filter(one => list.includes(one)))
    .optional(),
  code_challenge_methods_supported: names
    .transform(list => list.filter(name => name === 'S256').slice(0, 1))
    .optional(),
  authorization_response_iss_parameter_supported: z.boolean().optional(),
  client_id_metadata_document_supported: z.boolean().optional(),
});
export type IssuerMetadata = z.infer<typeof issuerSchema>;

/** Endpoints that requests or browsers are sent to. */
const ENDPOINTS = [
  'authorization_endpoint',
  'token_endpoint',
  'registration_endpoint',
  'revocation_endpoint',
  'jwks_uri',
] as const;

const MAX_REDIRECTS = 2;
/** The maximum number of authorization servers to try. The first that works is used. */
const MAX_ISSUERS = 3;

/** Reads metadata documents, through the outbound guard. */
export class MetadataReader {
  readonly #fetch: GuardedFetch;
  readonly #guard: Pick<Guard, 'check'>;

  constructor(options: { fetch: GuardedFetch; guard: Pick<Guard, 'check'> }) {
    this.#fetch = options.fetch;
    this.#guard = options.guard;
  }

  /**
   * Reads the protected resource metadata of a server: where its challenge says, else at the two well-known places (MCP,
   * Authorization Server Discovery).
   * @returns undefined if it publishes none
   * @throws MetadataError `invalid`, also for metadata of another resource; `unavailable`
   */
  async resource(serverUrl: string, named: string | undefined): Promise<ResourceMetadata | undefined> {
    const { origin, pathname } = new URL(serverUrl);
    const wellKnown = `${origin}/.well-known/oauth-protected-resource`;
    const path = pathname === '/' ? [] : [`${wellKnown}${pathname.replace(/\/$/, '')}`];
    const places = [...(named === undefined ? [] : [named]), ...path, wellKnown];
    let failure: MetadataError | undefined;
    for (const place of new Set(places)) {
      try {
        const document = await this.#read(place);
        if (document !== undefined) return resourceOf(document, serverUrl);
      } catch (error) {
        // A server behind a proxy may name an address of its own that nobody else reaches.
        if (!(error instanceof MetadataError) || error.reason !== 'unavailable') throw error;
        failure ??= error;
      }
    }
    if (failure) throw failure;
    return undefined;
  }

  /**
   * Reads the metadata of an authorization server, at the places of MCP's order.
   * @throws MetadataError `absent`; `invalid`, also for metadata of another issuer; `unavailable`
   */
  async issuer(issuer: string): Promise<IssuerMetadata> {
    for (const place of placesOf(issuer)) {
      const document = await this.#read(place);
      if (document !== undefined) return this.#issuerOf(document, issuer);
    }
    throw new MetadataError('absent', `The authorization server ${shown(issuer)} publishes no metadata.`);
  }

  #issuerOf(document: unknown, issuer: string): IssuerMetadata {
    const parsed = issuerSchema.safeParse(document);
    const invalid = (why: string) =>
      new MetadataError('invalid', `The metadata of the authorization server ${shown(issuer)} ${why}.`);
    if (!parsed.success) throw invalid('is incomplete, or not as it should be');
    const metadata = parsed.data;
    // RFC 8414 §3.3, by simple comparison: another issuer's metadata would let one server collect the codes of another.
    if (metadata.issuer !== issuer) throw invalid(`names another issuer, ${shown(metadata.issuer)}`);
    for (const name of ENDPOINTS) {
      const endpoint = metadata[name];
      if (endpoint !== undefined && !this.#isAllowed(endpoint))
        throw invalid(`has an address in ${name} that is not allowed`);
    }
    return metadata;
  }

  #isAllowed(endpoint: string): boolean {
    const parsed = URL.parse(endpoint);
    if (!parsed || parsed.hash !== '') return false;
    try {
      this.#guard.check(parsed);
      return true;
    } catch {
      return false;
    }
  }

  /** Returns undefined for a place without a document. */
  async #read(place: string): Promise<unknown> {
    let at = URL.parse(place);
    if (!at) throw new MetadataError('invalid', `The address ${shown(place)} of metadata is no URL.`);
    const { origin } = at;
    for (let redirects = 0; ; redirects++) {
      const response = await this.#get(at);
      const { status } = response;
      if (status === 200) return parseDocument(await response.text(), at.href);
      if (status < 300 || status >= 400) {
        if (status < 500 && status !== 429) return undefined;
        throw new MetadataError('unavailable', `${shown(at.href)} returned HTTP ${status}.`);
      }
      const next = URL.parse(response.headers.get('location') ?? '', at.href);
      if (next?.origin !== origin || redirects === MAX_REDIRECTS)
        throw new MetadataError('invalid', `${shown(at.href)} redirects too often, or to another origin.`);
      at = next;
    }
  }

  async #get(at: URL): Promise<Response> {
    try {
      return await this.#fetch(at.href, { method: 'GET', headers: { accept: 'application/json' } });
    } catch (error) {
      throw new MetadataError(
        'unavailable',
        `${shown(at.href)} could not be read: ${whyUnreached(error)}.`,
        error,
      );
    }
  }
}

/** Returns the places of an authorization server's metadata, in the order in which MCP clients try them. */
function placesOf(issuer: string): string[] {
  const parsed = URL.parse(issuer);
  if (!parsed || parsed.search !== '' || parsed.hash !== '')
    throw new MetadataError('invalid', `The issuer ${shown(issuer)} is no URL without query and fragment.`);
  const { origin } = parsed;
  const path = parsed.pathname.replace(/\/$/, '');
  const places = [
    `${origin}/.well-known/oauth-authorization-server${path}`,
    `${origin}/.well-known/openid-configuration${path}`,
  ];
  return path === '' ? places : [...places, `${origin}${path}/.well-known/openid-configuration`];
}

function resourceOf(document: unknown, serverUrl: string): ResourceMetadata {
  const found = resourceSchema.safeParse(document);
  if (!found.success)
    throw new MetadataError('invalid', "The server's protected resource metadata is not valid.");
  const { resource = serverUrl, authorization_servers: issuers = [], scopes_supported: scopes } = found.data;
  if (!covers(resource, serverUrl))
    throw new MetadataError(
      'invalid',
      `The server's protected resource metadata is for another resource, ${shown(resource)}.`,
    );
  return { resource, issuers: issuers.slice(0, MAX_ISSUERS), scopes: scopes && scopeNames(scopes) };
}

/** Returns whether a resource is the server itself or a parent path of it. */
function covers(resource: string, serverUrl: string): boolean {
  const parent = URL.parse(resource);
  const own = new URL(serverUrl);
  if (parent?.origin !== own.origin || parent.hash !== '') return false;
  if (parent.search !== '' && parent.search !== own.search) return false;
  const path = parent.pathname.replace(/\/$/, '');
  return own.pathname === parent.pathname || own.pathname === path || own.pathname.startsWith(`${path}/`);
}

function parseDocument(text: string, place: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // A page for people, such as a single-page application that answers every path.
    if (/^\s*</.test(text)) return undefined;
    throw new MetadataError('invalid', `${shown(place)} is not JSON.`);
  }
}

/** Returns an address for an error's text. */
const shown = (address: string): string =>
  JSON.stringify(address.replaceAll(/[^\x21-\x7e]/g, '').slice(0, 200));
