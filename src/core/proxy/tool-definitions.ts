import { LRUCache } from 'lru-cache';
import type { Clock } from '../../platform/clock.ts';
import { sanitise } from '../../platform/sanitize.ts';
import { SingleFlight } from '../../platform/single-flight.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { withoutSpan } from '../../platform/telemetry/tracing.ts';
import type { Caller } from '../access/caller.ts';
import { annotationsOf, worseOf, type Annotations, type Server } from '../catalogue/entry.ts';
import { isOverlarge } from './arguments/checkable-schema.ts';
import { headerProblem } from './arguments/param-headers.ts';
import type { ProxyLimits } from './limits.ts';
import type { ListedTool, Listing } from './tools.ts';
import type { Params } from './upstream/envelope.ts';

const MAX_LISTINGS = 1_000;
/** The size of listings as they came over the wire. The kept parts are smaller. */
const MAX_BYTES = 32 * 1024 * 1024;
const MIN_TTL_MS = 60_000;
const MAX_TTL_MS = 24 * 60 * 60_000;
/** The default, for servers that do not say how long their listing holds. */
const DEFAULT_TTL_MS = 60 * 60_000;
const MAX_DESCRIPTION = 80;
/** Calls do not wait for this long for the listing of a server that did not list its tools in time. */
const SLOW_MS = 10 * 60_000;

/** One caller's view of a server: a listing made with a user's account says nothing about what others see. */
export interface View {
  readonly server: Server;
  readonly caller: Pick<Caller, 'tenantId' | 'subject'>;
  /** The user's account whose token the calls carry. Without one, everybody sees the same. */
  readonly connectionId: string | undefined;
}

interface Request {
  readonly method: string;
  readonly params: Params | undefined;
}

/** The parts of a listing that calls are checked with. */
export interface KnownTools {
  /** Schemas that are too large are kept empty: no call shall pay for their size. */
  readonly schemas: ReadonlyMap<string, ListedTool['inputSchema']>;
  /** The beginnings of the descriptions, which tell tools apart. */
  readonly descriptions: ReadonlyMap<string, string>;
  /** The tools' effects, as the server states them. */
  readonly annotations: ReadonlyMap<string, Annotations>;
  /** The tools whose definition must not be used, each with the reason. */
  readonly unusable: ReadonlyMap<string, string>;
  /** True when the server said that the listing is for everybody. */
  readonly isPublic: boolean;
  readonly bytes: number;
  /** The time, in milliseconds, from which the listing is stale and only helps to explain refusals. */
  freshUntil: number;
}

interface Parts {
  readonly clock: Clock;
  readonly log: Log;
  readonly limits: Pick<ProxyLimits, 'toolRefreshIntervalMs'>;
  /** Takes every listing that is the same for everybody. Never throws and never waits. */
  readonly onShared?: ((server: Server, tools: readonly ListedTool[]) => void) | undefined;
}

/** Keeps the tools that servers list themselves, for the callers they were listed for. In memory and bounded. */
export class ToolDefinitions {
  readonly #parts: Parts;
  readonly #known = new LRUCache<string, KnownTools>({
    max: MAX_LISTINGS,
    maxSize: MAX_BYTES,
    sizeCalculation: ({ bytes }) => bytes + 1,
  });
  readonly #refreshedAt = new LRUCache<string, number>({ max: 10_000 });
  readonly #refreshing = new SingleFlight<void>();
  /** The times until which nobody waits for a listing that was late before. */
  readonly #slowUntil = new LRUCache<string, number>({ max: 10_000 });

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Returns the last listing for this view, fresh or stale. */
  known(view: View): KnownTools | undefined {
    const shared = this.#known.get(sharedKey(view));
    if (view.connectionId === undefined) return shared;
    return this.#known.get(keyOf(view)) ?? (shared?.isPublic ? shared : undefined);
  }

  /** Returns the last listing for this view, if it still holds. */
  fresh(view: View): KnownTools | undefined {
    const known = this.known(view);
    return known && this.#parts.clock.now() < known.freshUntil ? known : undefined;
  }

  /** Returns a tool's input schema: the server's own, else the catalogue's. */
  schemaOf(view: View, name: unknown): unknown {
    if (typeof name !== 'string') return undefined;
    return (
      this.known(view)?.schemas.get(name) ?? view.server.tools.find(tool => tool.name === name)?.input_schema
    );
  }

  /** Returns the tool that a request calls, if anybody has listed one of that name: other names may be any text. */
  calledBy(view: View, { method, params }: Request): string | undefined {
    const name = method === 'tools/call' ? params?.['name'] : undefined;
    return typeof name === 'string' && this.schemaOf(view, name) !== undefined ? name : undefined;
  }

  /** Remembers a complete listing. Returns the tools that may be used. */
  keep(view: View, listing: Listing): ListedTool[] {
    const { server } = view;
    const unusable = new Map<string, string>();
    const overlarge = new Set(listing.tools.filter(({ inputSchema }) => isOverlarge(inputSchema)));
    const tools = listing.tools.filter(tool => {
      const { name, inputSchema } = tool;
      // Only revision 2026-07-28 knows the extension; elsewhere the member means nothing.
      const problem = listing.isModern && !overlarge.has(tool) ? headerProblem(inputSchema) : undefined;
      if (problem === undefined) return true;
      unusable.set(name, problem);
      this.#parts.log.warn(
        { serverId: server.id, tool: sanitise(name), reason: problem },
        'tool left out of the listing',
      );
      return false;
    });
    const isShared = view.connectionId === undefined || listing.isPublic;
    const now = this.#parts.clock.now();
    this.#refreshedAt.set(keyOf(view), now);
    this.#slowUntil.delete(keyOf(view));
    const ttlMs = Math.min(Math.max(listing.ttlMs ?? DEFAULT_TTL_MS, MIN_TTL_MS), MAX_TTL_MS);
    this.#known.set(isShared ? sharedKey(view) : keyOf(view), {
      schemas: new Map(tools.map(tool => [tool.name, overlarge.has(tool) ? {} : tool.inputSchema])),
      descriptions: new Map(tools.map(tool => [tool.name, sanitise(tool.description, MAX_DESCRIPTION)])),
      annotations: annotationsByName(tools),
      unusable,
      isPublic: listing.isPublic,
      bytes: listing.bytes,
      freshUntil: now + ttlMs,
    });
    if (isShared) withoutSpan(() => this.#parts.onShared?.(server, tools));
    return tools;
  }

  /** Returns whether a listing is worth waiting for: the last one that a call waited for came in time. */
  mayWait(view: View): boolean {
    return this.#parts.clock.now() >= (this.#slowUntil.get(keyOf(view)) ?? -Infinity);
  }

  /** Notes that a call has waited for a listing in vain. */
  noteSlow(view: View): void {
    this.#slowUntil.set(keyOf(view), this.#parts.clock.now() + SLOW_MS);
  }

  /** Notes that the server's tools have changed, as it says. */
  markStale(view: View): void {
    for (const key of [sharedKey(view), keyOf(view)]) {
      const known = this.#known.peek(key);
      if (known) known.freshUntil = -Infinity;
    }
  }

  /**
   * Lists the tools anew: one listing at a time, and at most one a minute for each view. A failure is only logged. Resolves,
   * and never rejects, when no listing is under way any more.
   */
  async refreshSoon(view: View, list: () => Promise<Listing>): Promise<void> {
    const { clock, log, limits } = this.#parts;
    const key = keyOf(view);
    const now = clock.now();
    if (
      now - (this.#refreshedAt.get(key) ?? -Infinity) < limits.toolRefreshIntervalMs ||
      limits.toolRefreshIntervalMs === Infinity
    )
      return this.#refreshing.running(key);
    this.#refreshedAt.set(key, now);
    await this.#refreshing.run(key, async () => {
      try {
        this.keep(view, await list());
      } catch (error) {
        log.info({ err: error, serverId: view.server.id }, 'tool definitions not refreshed');
      }
    });
  }
}

function annotationsByName(tools: readonly ListedTool[]): Map<string, Annotations> {
  const byName = new Map<string, Annotations>();
  for (const { name, annotations } of tools) {
    const own = annotationsOf(annotations);
    byName.set(name, worseOf(byName.has(name) ? byName.get(name) : own, own));
  }
  return byName;
}

const sharedKey = ({ server }: View) => `${server.id} ${server.remoteUrl}`;

const keyOf = (view: View) =>
  view.connectionId === undefined
    ? sharedKey(view)
    : JSON.stringify([sharedKey(view), view.caller.tenantId, view.caller.subject?.userId, view.connectionId]);
