import { LRUCache } from 'lru-cache';
import type { GuardedFetch } from '../../../platform/outbound/fetch.ts';
import type { Guard } from '../../../platform/outbound/guard.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { monotonicMs, type Clock } from '../../../platform/time.ts';
import type { ServerHead } from '../../catalogue/entry.ts';
import { readChallenge, type Challenge } from './challenge.ts';
import { MetadataError, MetadataReader, type IssuerMetadata, type ResourceMetadata } from './metadata.ts';

/** The authorization server of an MCP server, and what to ask it for. */
export interface Discovered {
  readonly metadata: IssuerMetadata;
  /** The resource parameter (RFC 8707); '' if the entry says that there must be none. */
  readonly resource: string;
  /** The scopes of the challenge or, without one, those that the server's metadata lists; empty: the server names none. */
  readonly scopes: readonly string[];
  /** The server's challenge to this call or, without one, to a request without credentials. */
  readonly challenge: Challenge;
}

/** The part that is the same for every caller. */
type Published = Omit<Discovered, 'challenge'>;

const KNOWN_MS = 10 * 60_000;
const FAILED_MS = 15_000;
const ISSUER_MS = 60 * 60_000;
/** A document is read again at most this often. */
const AGAIN_MS = 10_000;
/** All requests for the metadata of one discovery together: a slow server may name many places. */
const DISCOVERY_MS = 15_000;
/** Each entry is of a few KiB. */
const MAX_CACHED = 1_000;

interface Options {
  readonly fetch: GuardedFetch;
  readonly guard: Pick<Guard, 'check'>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Finds the authorization servers of MCP servers (MCP, Authorization Server Discovery). */
export class Discovery {
  readonly #fetch: GuardedFetch;
  readonly #reader: MetadataReader;
  readonly #log: Log;
  readonly #servers: Cached<Published>;
  readonly #probes: Cached<Challenge>;
  readonly #issuers: Cached<IssuerMetadata>;

  constructor({ fetch, guard, clock, log }: Options) {
    this.#fetch = fetch;
    this.#reader = new MetadataReader({ fetch, guard });
    this.#log = log;
    this.#servers = new Cached(clock, KNOWN_MS);
    this.#probes = new Cached(clock, KNOWN_MS);
    this.#issuers = new Cached(clock, ISSUER_MS);
  }

  /**
   * Returns the authorization server of an MCP server, as found within the last ten minutes.
   * @param challenge the server's challenge to the call, if it was called. Nobody else is asked for its scopes
   * @param again reads everything again, unless that was done within the last ten seconds
   * @throws MetadataError `absent` if the server uses none
   */
  async of(server: ServerHead, challenge?: Challenge, again = false): Promise<Discovered> {
    const { remoteUrl, auth, learned } = server;
    const said = challenge ?? (await this.#probes.get(remoteUrl, () => this.#probe(server), { again }));
    const { issuer, resource, assume_pkce } = auth;
    const key = JSON.stringify([remoteUrl, issuer, resource, assume_pkce]);
    // A server that requires a sign-in only for its tools does not challenge the probe.
    const named = said.resourceMetadata ?? learned?.resourceMetadata;
    const read = () => withinMs(DISCOVERY_MS, this.#discover(server, named, again));
    const found = await this.#servers.get(key, read, { again, named });
    const place = named === undefined ? {} : { resourceMetadata: named };
    return { ...found, scopes: said.scopes ?? auth.scopes ?? found.scopes, challenge: { ...said, ...place } };
  }

  /** Returns the metadata of an authorization server, as read within the last hour. @throws MetadataError */
  issuer(issuer: string, again = false): Promise<IssuerMetadata> {
    return this.#issuers.get(issuer, () => this.#reader.issuer(issuer), { again });
  }

  async #discover(server: ServerHead, named: string | undefined, again: boolean): Promise<Published> {
    const found = await this.#reader.resource(server.remoteUrl, named);
    const metadata = await this.#issuerOf(server, found, again);
    return { metadata, resource: resourceFor(server, found), scopes: found?.scopes ?? [] };
  }

  async #issuerOf(
    server: ServerHead,
    found: ResourceMetadata | undefined,
    again: boolean,
  ): Promise<IssuerMetadata> {
    const { auth, remoteUrl, id: serverId } = server;
    const published = found?.issuers ?? [];
    if (auth.issuer !== undefined) {
      if (published.length > 0 && !published.includes(auth.issuer))
        this.#log.info(
          { serverId, issuer: auth.issuer, published },
          'used the issuer of the catalogue entry instead of the published one',
        );
      return this.#named(server, auth.issuer, again);
    }
    // Servers of revision 2025-03-26 are their own authorization servers.
    if (published.length === 0) return this.#guessed(server, new URL(remoteUrl).origin, again);
    let failure: unknown;
    for (const issuer of published) {
      try {
        return await this.#named(server, issuer, again);
      } catch (error) {
        failure ??= error;
      }
    }
    throw failure;
  }

  /** Reads the metadata of an issuer that somebody has named, so that it must have some. */
  async #named(server: ServerHead, issuer: string, again: boolean): Promise<IssuerMetadata> {
    try {
      return await this.#usable(server, issuer, again);
    } catch (error) {
      if (!(error instanceof MetadataError) || error.reason !== 'absent') throw error;
      throw new MetadataError('unavailable', error.message, error);
    }
  }

  /** Reads the metadata of an issuer that nobody has named, so that unusable metadata there means nothing. */
  async #guessed(server: ServerHead, issuer: string, again: boolean): Promise<IssuerMetadata> {
    try {
      return await this.#usable(server, issuer, again);
    } catch (error) {
      if (!(error instanceof MetadataError) || error.reason !== 'invalid') throw error;
      throw new MetadataError('absent', `The server ${server.id} names no authorization server.`, error);
    }
  }

  async #usable({ auth }: ServerHead, issuer: string, again: boolean): Promise<IssuerMetadata> {
    const metadata = await this.issuer(issuer, again);
    // MCP, Authorization Code Protection: without PKCE, a stolen code could be used.
    if (auth.assume_pkce === true || metadata.code_challenge_methods_supported?.includes('S256'))
      return metadata;
    throw new MetadataError(
      'invalid',
      `The authorization server ${metadata.issuer} does not say that it supports PKCE with S256.`,
    );
  }

  /** Asks a server for its tools without credentials, to hear its challenge. */
  async #probe({ remoteUrl }: ServerHead): Promise<Challenge> {
    const response = await this.#fetch(remoteUrl, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2025-06-18',
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} }),
    }).catch(() => undefined);
    if (response?.status !== 401) return {};
    return readChallenge(response.headers.get('www-authenticate') ?? undefined);
  }
}

/** Returns the resource parameter for a server (RFC 8707): as published, unless its entry says otherwise. */
function resourceFor({ auth, remoteUrl }: ServerHead, found: ResourceMetadata | undefined): string {
  if (auth.resource === 'omit') return '';
  const { origin, pathname } = new URL(remoteUrl);
  return auth.resource ?? found?.resource ?? (pathname === '/' ? origin : `${origin}${pathname}`);
}

/** @throws MetadataError `unavailable` if the work takes longer */
async function withinMs<T>(limitMs: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    const error = new MetadataError('unavailable', `The discovery took longer than ${limitMs / 1_000} s.`);
    timer = setTimeout(() => reject(error), limitMs).unref();
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

interface Entry<T> {
  readonly result: Promise<T>;
  /** The URL at which the result was read, if the server named one. */
  readonly named: string | undefined;
  /** When it was read again; -Infinity if it was not. */
  readonly againAtMs: number;
}

/** Results by key: successes for long, failures for a moment, so that a broken server is not asked at every call. */
class Cached<T extends object> {
  readonly #known: LRUCache<string, Entry<T>>;
  readonly #clock: Clock;

  constructor(clock: Clock, knownMs: number) {
    this.#clock = clock;
    this.#known = new LRUCache({ max: MAX_CACHED, ttl: knownMs, perf: { now: () => monotonicMs(clock) } });
  }

  get(key: string, read: () => Promise<T>, wanted: Wanted): Promise<T> {
    const known = this.#known.get(key);
    const nowMs = monotonicMs(this.#clock);
    if (known && holds(known, wanted, nowMs)) return known.result;
    const { again, named } = wanted;
    const entry = { result: read(), named, againAtMs: known || again ? nowMs : -Infinity };
    this.#known.set(key, entry);
    entry.result.catch(() => {
      if (this.#known.peek(key) === entry) this.#known.set(key, entry, { ttl: FAILED_MS });
    });
    return entry.result;
  }
}

interface Wanted {
  /** True to read again, unless that was done a moment ago. */
  readonly again: boolean;
  /** The URL that the server names now. */
  readonly named?: string | undefined;
}

/** Returns whether a known result can be used. */
function holds(known: Entry<unknown>, { again, named }: Wanted, nowMs: number): boolean {
  const isElsewhere = named !== undefined && named !== known.named;
  if (!isElsewhere && !again) return true;
  // The first place that is named is read at once. A server may name another one each time.
  if (isElsewhere && known.named === undefined) return false;
  return nowMs - known.againAtMs <= AGAIN_MS;
}
