import { lookup, type LookupAddress } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import ipaddr from 'ipaddr.js';
import { buildConnector } from 'undici';
import { SwitchboardError } from '../../errors.ts';

/** Every address of a host name, as the system resolves it. */
export type Resolve = (
  hostname: string,
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

export interface GuardOptions {
  /** Also `http:`, and loopback, private and unique-local addresses: for development and tests. */
  readonly allowPrivateNetwork: boolean;
  readonly connectTimeoutMs: number;
  /** For tests; the system's resolver otherwise. */
  readonly resolve?: Resolve;
}

/** Ranges (ipaddr.js names) that the private-network flag opens. Nothing opens link-local, which holds the metadata services. */
const PRIVATE_RANGES: ReadonlySet<string> = new Set(['loopback', 'private', 'uniqueLocal']);

/** Metadata services outside the link-local range: AWS and Google over IPv6 (unique-local), Azure's wire server (global). */
const METADATA: ReadonlySet<string> = new Set(['fd00:ec2::254', 'fd20:ce::254', '168.63.129.16']);

const GLOBAL_UNICAST_V6 = ipaddr.IPv6.parseCIDR('2000::/3');
const NAT64 = ipaddr.IPv6.parseCIDR('64:ff9b::/96');

/**
 * The outbound guard (server-side request forgery): which URLs may be asked, and a connector that connects only to
 * addresses it has checked. The check sits in the connection's own name look-up, so a name cannot answer one address to
 * the check and another to the connection (DNS rebinding).
 */
export class Guard {
  readonly #allowPrivate: boolean;
  readonly #resolve: Resolve;
  /** URLs that have passed; nobody changes one afterwards. */
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
    this.connect = (target, callback) => {
      // A literal address is connected to without a look-up.
      const refusal = isIP(target.hostname) === 0 ? undefined : this.#refusal(target.hostname);
      if (refusal) callback(refusal, null);
      else connector(target, callback);
    };
  }

  /** @throws SwitchboardError `upstream_blocked` when the URL is one that is never asked, whatever its name resolves to. */
  check(url: URL): void {
    if (this.#passed.has(url)) return;
    if (url.protocol !== 'https:' && !(url.protocol === 'http:' && this.#allowPrivate)) {
      throw blocked('is not an https: URL');
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
    return blocked('leads to an address that is not public', { address, range });
  }
}

/**
 * What kind of address this is: `unicast` for public ones, else ipaddr.js's name of the range. IPv4 inside IPv6 counts
 * as what it is (RFC 4291 §2.5.5.2 mapped; RFC 6052 NAT64, where only public addresses may stand, §3.1). 6to4, Teredo,
 * local NAT64 and IPv4-compatible addresses stay what they are: not public.
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

/** The address stays in the cause: an answer that named it would map the inner network for whoever gives the addresses. */
const blocked = (why: string, cause?: unknown) =>
  new SwitchboardError('upstream_blocked', `The MCP server's address is not allowed: it ${why}.`, { cause });

export const blockedRedirect = (): SwitchboardError => blocked('redirects to another origin');
