import { lookup, type LookupAddress } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import ipaddr from 'ipaddr.js';
import { buildConnector } from 'undici';
import { SwitchboardError } from '../../errors.ts';
import { isOutOfFiles } from '../open-files.ts';
import type { Log } from '../telemetry/log.ts';
import { reasonOf, ThrottledLog } from '../telemetry/throttled-log.ts';
import { systemClock } from '../time.ts';

/** Every address of a host name, as the system resolves it. */
export type Resolve = (
  hostname: string,
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

export interface GuardOptions {
  /** Also allows `http:`, loopback, private and unique-local addresses, for development and tests. */
  readonly allowPrivateNetwork: boolean;
  readonly connectTimeoutMs: number;
  /** Gets a warning when there is no file descriptor left for a connection. */
  readonly log?: Log;
  /** For tests; by default the system's resolver. */
  readonly resolve?: Resolve;
}

/** Ranges (ipaddr.js names) that the private-network flag opens. Link-local, which has the metadata services, is never opened. */
const PRIVATE_RANGES: ReadonlySet<string> = new Set(['loopback', 'private', 'uniqueLocal']);

/** Metadata services outside the link-local range: AWS and Google over IPv6 (unique-local), Azure's wire server (global). */
const METADATA: ReadonlySet<string> = new Set(['fd00:ec2::254', 'fd20:ce::254', '168.63.129.16']);

const OUT_OF_FILES =
  'ran out of file descriptors, so connections fail: raise the limit of open files (ulimit -n)';

const GLOBAL_UNICAST_V6 = ipaddr.IPv6.parseCIDR('2000::/3');
const NAT64 = ipaddr.IPv6.parseCIDR('64:ff9b::/96');

/**
 * The outbound guard against server-side request forgery. It decides which URLs may be requested, and its
 * connector connects only to addresses it has checked. The check is part of the connection's own DNS lookup,
 * so a name cannot resolve to one address for the check and another for the connection (DNS rebinding).
 */
export class Guard {
  readonly #allowPrivate: boolean;
  readonly #resolve: Resolve;
  /** URLs that have passed; they are never modified afterwards. */
  readonly #passed = new WeakSet<URL>();
  readonly connect: buildConnector.connector;

  constructor(options: GuardOptions) {
    this.#allowPrivate = options.allowPrivateNetwork;
    this.#resolve = options.resolve ?? ((hostname, done) => lookup(hostname, { all: true }, done));
    const connector = buildConnector({
      timeout: options.connectTimeoutMs,
      allowH2: false,
      autoSelectFamily: true,
      lookup: this.lookup,
    });
    const warnings = options.log && new ThrottledLog(options.log, systemClock);
    this.connect = (target, callback) => {
      // Literal addresses are connected to without a lookup.
      const refusal = isIP(target.hostname) === 0 ? undefined : this.#refusal(target.hostname);
      if (refusal) return callback(refusal, null);
      connector(target, (...result) => {
        const [error] = result;
        if (isOutOfFiles(error)) warnings?.warn({ reason: reasonOf(error) }, OUT_OF_FILES);
        callback(...result);
      });
    };
  }

  /** Part of every refusal, whatever the address, so that it does not reveal which addresses are private. */
  get #hint(): string {
    return this.#allowPrivate
      ? ''
      : ' Switchboard allows http: and private addresses only with SWITCHBOARD_ALLOW_PRIVATE_NETWORK=true.';
  }

  /** @throws SwitchboardError `upstream_blocked` if the URL is forbidden, whatever its name resolves to */
  check(url: URL): void {
    if (this.#passed.has(url)) return;
    if (url.protocol !== 'https:' && !(url.protocol === 'http:' && this.#allowPrivate)) {
      throw blocked('is not an https: URL', undefined, this.#hint);
    }
    if (url.username !== '' || url.password !== '') throw blocked('carries credentials in its URL');
    const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
    const refusal = isIP(host) === 0 ? undefined : this.#refusal(host);
    if (refusal) throw refusal;
    this.#passed.add(url);
  }

  /** The resolver of `net.connect`: fails if any of the name's addresses is refused. */
  readonly lookup: LookupFunction = (hostname, options, callback) => {
    this.#resolve(hostname, (error, addresses) => {
      const [first] = addresses ?? [];
      const refusal = error ?? addresses.map(({ address }) => this.#refusal(address)).find(Boolean);
      if (refusal || !first) {
        callback(refusal ?? Object.assign(new Error('no address'), { code: 'ENOTFOUND' }), []);
      } else if (options.all) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };

  #refusal(address: string): SwitchboardError | undefined {
    const range = rangeOf(address);
    if (range === 'unicast' || (this.#allowPrivate && PRIVATE_RANGES.has(range))) return undefined;
    return blocked('leads to an address that is not public', { address, range }, this.#hint);
  }
}

/**
 * Returns the kind of an address: `unicast` for public ones, otherwise ipaddr.js's name of the range. IPv4
 * inside IPv6 is classified as IPv4 (RFC 4291 §2.5.5.2 mapped; RFC 6052 NAT64, which allows only public
 * addresses, §3.1). 6to4, Teredo, local NAT64 and IPv4-compatible addresses are never public.
 */
function rangeOf(address: string): string {
  if (!ipaddr.isValid(address)) return 'invalid';
  const parsed = ipaddr.parse(address);
  if (parsed instanceof ipaddr.IPv4) return METADATA.has(parsed.toString()) ? 'metadata' : parsed.range();
  if (parsed.isIPv4MappedAddress()) return rangeOf(parsed.toIPv4Address().toString());
  if (parsed.match(NAT64)) {
    const inner = rangeOf(ipaddr.fromByteArray(parsed.toByteArray().slice(12)).toString());
    return inner === 'unicast' ? inner : `nat64 of ${inner}`;
  }
  if (METADATA.has(parsed.toString())) return 'metadata';
  const range = parsed.range();
  return range === 'unicast' && !parsed.match(GLOBAL_UNICAST_V6) ? 'reserved' : range;
}

/** The address is only in the cause: naming it in the error would let callers map the internal network. */
const blocked = (why: string, cause?: unknown, hint = '') =>
  new SwitchboardError('upstream_blocked', `The MCP server's address is not allowed: it ${why}.${hint}`, {
    cause,
  });

export const blockedRedirect = (): SwitchboardError => blocked('redirects to another origin');
