import { slices } from '../platform/time.ts';
import type { Catalogue } from './catalogue/catalogue.ts';
import type { Access, HeldServer, Origin, ServerHead } from './catalogue/entry.ts';
import type { Health, HealthState } from './catalogue/health.ts';

/** Servers for an operator. An absent field does not matter. */
export interface ServerFilter {
  /** Text in the id, the name or the address, in any case. */
  readonly text?: string | undefined;
  readonly accessKind?: Access['kind'] | undefined;
  readonly accessStatus?: Access['status'] | undefined;
  readonly health?: HealthState | 'unvisited' | undefined;
  /** `suspicious`: a tool matches a suspicion rule. */
  readonly tools?: 'yes' | 'no' | 'suspicious' | undefined;
  readonly isActive?: boolean | undefined;
  readonly origin?: Origin | undefined;
}

interface Known {
  readonly accessOf: (server: ServerHead) => Access;
  readonly healthOf: (server: ServerHead) => Health | undefined;
}

interface Page {
  /** Only ids after this one. */
  readonly after?: string | undefined;
  readonly limit: number;
}

/** Returns a page of the servers that match, ordered by id, and the number of all that match. Yields to the event loop. */
export async function listServers(
  catalogue: Catalogue,
  filter: ServerFilter,
  known: Known,
  { after, limit }: Page,
): Promise<{ servers: readonly HeldServer[]; total: number; hasMore: boolean }> {
  const matches = matcher(filter, known);
  const pause = slices();
  // One extra server shows whether there are more.
  const kept = limit + 1;
  const later: HeldServer[] = [];
  let total = 0;
  for (const server of catalogue.all()) {
    const wait = pause();
    if (wait) await wait;
    if (!matches(server)) continue;
    total++;
    if (after !== undefined && server.id <= after) continue;
    later.push(server);
    if (later.length === 2 * kept) keepFirst(later, kept);
  }
  keepFirst(later, kept);
  return { servers: later.slice(0, limit), total, hasMore: later.length > limit };
}

/** Keeps so many servers with the smallest ids, in order. */
function keepFirst(servers: HeldServer[], count: number): void {
  servers.sort((one, other) => (one.id < other.id ? -1 : 1)).splice(count);
}

/** The cheap conditions come first. */
function matcher(
  { text, accessKind, accessStatus, health, tools, isActive, origin }: ServerFilter,
  { accessOf, healthOf }: Known,
): (server: HeldServer) => boolean {
  const wanted = text?.toLowerCase();
  const conditions: ((server: HeldServer) => boolean)[] = [
    ...(isActive === undefined ? [] : [(one: HeldServer) => one.active === isActive]),
    ...(origin === undefined ? [] : [(one: HeldServer) => one.origin === origin]),
    ...(tools === undefined ? [] : [TOOLS_CONDITIONS[tools]]),
    ...(wanted === undefined ? [] : [(one: HeldServer) => textOf(one).includes(wanted)]),
    ...(health === undefined ? [] : [(one: HeldServer) => (healthOf(one)?.state ?? 'unvisited') === health]),
    ...(accessKind === undefined ? [] : [(one: HeldServer) => accessOf(one).kind === accessKind]),
    ...(accessStatus === undefined ? [] : [(one: HeldServer) => accessOf(one).status === accessStatus]),
  ];
  return server => conditions.every(isMet => isMet(server));
}

const TOOLS_CONDITIONS: Readonly<
  Record<NonNullable<ServerFilter['tools']>, (server: HeldServer) => boolean>
> = {
  yes: ({ toolCount }) => toolCount > 0,
  no: ({ toolCount }) => toolCount === 0,
  suspicious: ({ suspiciousCount }) => suspiciousCount > 0,
};

/** No id, name or address contains a line break. */
const textOf = ({ id, name, remoteUrl }: HeldServer): string => `${id}\n${name}\n${remoteUrl}`.toLowerCase();
