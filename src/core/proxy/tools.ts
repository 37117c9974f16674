import { LRUCache } from 'lru-cache';
import { SwitchboardError } from '../../errors.ts';
import { asSentence, sanitise } from '../../platform/sanitize.ts';
import type { ProxyLimits } from './limits.ts';
import {
  errorOf,
  MISSING_CAPABILITY,
  type Params,
  type RpcAnswer,
  type RpcError,
  type UpstreamReply,
} from './upstream/envelope.ts';
import type { LargeResult } from './upstream/large-answer.ts';
import { AnsweredWrongly, brokeProtocol, sentTooMuch, Stopping } from './upstream/failures.ts';
import { isObject, type JsonParts } from '../../platform/json/limits.ts';
import type { Clock } from '../../platform/time.ts';
import { SingleFlight } from '../../platform/queues.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { withoutSpan } from '../../platform/telemetry/tracing.ts';
import type { Caller } from '../access/caller.ts';
import { annotationsOf, worseOf, type Annotations, type CalledServer } from '../catalogue/entry.ts';
import { isOverlarge } from './arguments/checkable-schema.ts';
import { headerProblem } from './arguments/param-headers.ts';

/** A tool as listed by its server, with all its fields. */
export interface ListedTool {
  readonly name: string;
  /** '' if the server gives none. */
  readonly description: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
  readonly [field: string]: unknown;
}

/** A tool's result as sent by its server, with all its fields. */
export interface ToolResult {
  readonly content: readonly unknown[];
  readonly isError: boolean;
  readonly [field: string]: unknown;
}

/** The server needs the client's input before it can finish (2026-07-28, multi round-trip requests). Has all its fields. */
export interface InputRequired {
  readonly resultType: 'input_required';
  readonly [field: string]: unknown;
}

/** A tool call. With `resume`, it continues a call whose result was `input_required`. */
export interface ToolCall {
  readonly name: string;
  readonly arguments?: Params;
  /** If set, the call is refused unless its server marks the tool as read-only (`readOnlyHint`). */
  readonly readOnly?: true;
  readonly resume?: { readonly inputResponses?: Params; readonly requestState?: string };
  /** Receives the server's progress. Must not throw. */
  readonly onProgress?: (progress: Progress) => void;
}

/** A tool call of a caller that may be asked for input. */
export interface InteractiveToolCall extends ToolCall {
  /** The input requests that the caller can handle, as MCP's ClientCapabilities. */
  readonly capabilities: Params;
}

/** The parameters of `notifications/progress` without its token. */
export interface Progress {
  readonly progress: number;
  readonly total?: number;
  readonly message?: string;
}

const META = 'io.modelcontextprotocol/';

/**
 * Returns the parameters of `tools/call`.
 * @param args the arguments to send, which may be converted from the call's own
 * @param progressToken unique among the running calls in one session
 */
export function toolCallParams(
  call: ToolCall | InteractiveToolCall,
  args: Params | undefined,
  progressToken: string,
): Params {
  const meta = {
    ...(call.onProgress ? { progressToken } : {}),
    ...('capabilities' in call ? { [`${META}clientCapabilities`]: call.capabilities } : {}),
  };
  return {
    name: call.name,
    ...(args === undefined ? {} : { arguments: args }),
    ...call.resume,
    ...(Object.keys(meta).length === 0 ? {} : { _meta: meta }),
  };
}

/** Returns a handler that reports the call's progress, if the call wants it. */
export const progressListener = (
  { onProgress }: ToolCall,
  token: string,
): ((method: string, params: unknown) => void) | undefined =>
  onProgress &&
  ((method, params) => {
    if (method !== 'notifications/progress' || !isObject(params)) return;
    const { progressToken, progress, total, message } = params;
    if (progressToken !== token || typeof progress !== 'number') return;
    onProgress({
      progress,
      ...(typeof total === 'number' ? { total } : {}),
      ...(typeof message === 'string' ? { message } : {}),
    });
  });

const MAX_DETAIL_CHARS = 1_000;
const MAX_LISTED_TOOLS = 10_000;

/** Advice for a caller that cannot be asked. */
const HOW_TO_ANSWER = `Use POST /v1/mcp/call: declare what you can answer in params._meta["${META}clientCapabilities"], and repeat the call with inputResponses and requestState. Or use an MCP client that declares the capability, at /mcp.`;

/** Advice for a call that was not repeated. */
export const LOST_SESSION =
  'The session with the server was lost, and the call may have run, so it was not repeated. If repeating it does no harm, send it again: it gets a new session.';

/** Returns the upstream's result. @throws SwitchboardError `upstream_error` with the upstream's own error. */
function resultOf(answer: RpcAnswer): unknown {
  if ('result' in answer) return answer.result;
  throw reportedError(answer.error);
}

const reportedError = (error: RpcError, advice = ''): SwitchboardError =>
  new SwitchboardError('upstream_error', detailOf(error, advice), { upstreamError: error });

/** A server does not ask a client without the capability (2026-07-28): it refuses the call and names the capability. */
function capabilityMissing(error: RpcError): SwitchboardError {
  const required = isObject(error.data) ? error.data['requiredCapabilities'] : undefined;
  return new SwitchboardError('upstream_input_required', detailOf(error, HOW_TO_ANSWER), {
    upstreamError: error,
    members: isObject(required) ? { required_capabilities: required } : {},
  });
}

function detailOf(error: RpcError, advice: string): string {
  const said = sanitise(error.message, MAX_DETAIL_CHARS) || `The MCP server reported error ${error.code}.`;
  return advice === '' ? said : `${asSentence(said)} ${advice}`;
}

/**
 * Returns the result in a reply to `tools/call`, for a caller that cannot be asked for input. A large one is returned as JSON.
 * @throws SwitchboardError as `toolOutcome`; `upstream_input_required` with the upstream's result as the member `input_required`, or
 * with its error if it did not ask
 */
export function toolResult(reply: UpstreamReply): ToolResult | JsonParts {
  const { answer } = reply;
  if ('result' in answer && answer.large) return largeToolResult(answer.large);
  const error = errorOf(answer);
  // A caller that can declare capabilities learns how from its own API.
  if (error?.code === MISSING_CAPABILITY) throw capabilityMissing(error);
  const outcome = toolOutcome(reply);
  if (!asksForInput(outcome)) return outcome;
  throw new SwitchboardError(
    'upstream_input_required',
    `The tool needs more input, which this endpoint cannot provide. ${HOW_TO_ANSWER}`,
    { members: { input_required: outcome } },
  );
}

function largeToolResult(large: LargeResult): JsonParts {
  if (!large.hasContent) throw withoutContent();
  return large.toToolResult();
}

const withoutContent = () => new AnsweredWrongly('returned a tools/call result without a content array');

/**
 * Returns the result in a reply to `tools/call`, or what it asks for.
 * @throws SwitchboardError `upstream_error` for a JSON-RPC error; `upstream_protocol` for an invalid result
 */
export function toolOutcome({ answer, lostSession }: UpstreamReply): ToolResult | InputRequired {
  const error = errorOf(answer);
  if (error && lostSession) throw reportedError(error, LOST_SESSION);
  const result = resultOf(answer);
  if (!isObject(result)) throw new AnsweredWrongly('returned a tools/call result that is not an object');
  const { content, resultType } = result;
  if (Array.isArray(content)) return { ...result, content, isError: result['isError'] === true };
  if (resultType === 'input_required') return { ...result, resultType };
  throw withoutContent();
}

/** A result with content is not a request for input, whatever other fields a server sends. */
export const asksForInput = (outcome: ToolResult | InputRequired): outcome is InputRequired =>
  !Array.isArray(outcome['content']);

/** All of a server's tools, with how long they are valid and for whom. */
export interface Listing {
  readonly tools: readonly ListedTool[];
  readonly bytes: number;
  /** Undefined if the server does not say. */
  readonly ttlMs: number | undefined;
  /** True if the server says that the list is the same for all callers. */
  readonly isPublic: boolean;
  /** True for a server of revision 2026-07-28. */
  readonly isModern: boolean;
}

/** Returns all pages of tools/list. Three limits stop endless pages: their number, their total size, and a repeated cursor. */
export async function listAllTools(
  ask: (params: Params | undefined) => Promise<UpstreamReply>,
  limits: Pick<ProxyLimits, 'maxToolPages' | 'maxResponseBytes'>,
): Promise<Listing> {
  const tools: ListedTool[] = [];
  const cursors = new Set<string>();
  const pages: Record<string, unknown>[] = [];
  let bytes = 0;
  let cursor: string | undefined;
  while (pages.length < limits.maxToolPages) {
    const reply = await ask(cursor === undefined ? undefined : { cursor });
    bytes += reply.bytes;
    if (bytes > limits.maxResponseBytes)
      throw sentTooMuch(`returned more than ${limits.maxResponseBytes} bytes of tools`);
    const result = resultOf(reply.answer);
    if (!isObject(result) || !Array.isArray(result['tools']))
      throw brokeProtocol('returned a tools/list result without a tools array');
    if (tools.length + result['tools'].length > MAX_LISTED_TOOLS)
      throw sentTooMuch(`returned more than ${MAX_LISTED_TOOLS} tools`);
    for (const tool of result['tools']) tools.push(toListedTool(tool));
    const { tools: _read, nextCursor: next, ...page } = result;
    pages.push(page);
    if (typeof next !== 'string') return { tools, bytes, ...holdingOf(pages) };
    if (cursors.has(next)) throw brokeProtocol('repeated a cursor in tools/list');
    cursors.add(next);
    cursor = next;
  }
  throw sentTooMuch(`returned more than ${limits.maxToolPages} pages of tools`);
}

/** A listing is valid as long as its shortest-lived page. */
function holdingOf(pages: readonly Record<string, unknown>[]): Omit<Listing, 'tools' | 'bytes'> {
  const ttls = pages.map(page => page['ttlMs']).filter(ttl => typeof ttl === 'number' && ttl >= 0);
  return {
    ttlMs: ttls.length === 0 ? undefined : Math.min(...(ttls as number[])),
    isPublic: pages.every(page => page['cacheScope'] === 'public'),
    isModern: pages.some(page => typeof page['resultType'] === 'string'),
  };
}

function toListedTool(tool: unknown): ListedTool {
  if (!isObject(tool) || typeof tool['name'] !== 'string')
    throw brokeProtocol('returned a tool without a name');
  // `warnings` is our own field: a tool's own field of that name is dropped.
  const { name, description, inputSchema, warnings: _theirs, ...others } = tool;
  return {
    ...others,
    name,
    description: typeof description === 'string' ? description : '',
    inputSchema: isObject(inputSchema) ? inputSchema : { type: 'object' },
  };
}

const MAX_LISTINGS = 1_000;
/** The size of listings on the wire. The kept parts are smaller. */
const MAX_BYTES = 32 * 1024 * 1024;
const MIN_TTL_MS = 60_000;
const MAX_TTL_MS = 24 * 60 * 60_000;
/** The default for servers that do not say how long their listing is valid. */
const DEFAULT_TTL_MS = 60 * 60_000;
const MAX_DESCRIPTION = 80;
/** How long calls do not wait for the listing of a server that was too slow before. */
const SLOW_MS = 10 * 60_000;

/** One caller's view of a server: a listing made with a user's account says nothing about what others see. */
export interface View {
  readonly server: CalledServer;
  readonly caller: Pick<Caller, 'tenantId' | 'subject'>;
  /** Names the connection whose credential the calls carry. Without one, all callers see the same tools. */
  readonly connectionKey: string | undefined;
}

interface Request {
  readonly method: string;
  readonly params: Params | undefined;
}

/** The parts of a listing needed for checking calls. */
export interface KnownTools {
  /** Oversized schemas are kept empty, so that no call pays for their size. */
  readonly schemas: ReadonlyMap<string, ListedTool['inputSchema']>;
  /** The start of each description, which distinguishes tools. */
  readonly descriptions: ReadonlyMap<string, string>;
  /** The tools' effects, as declared by the server. */
  readonly annotations: ReadonlyMap<string, Annotations>;
  /** The tools whose definition must not be used, with the reason. */
  readonly unusable: ReadonlyMap<string, string>;
  /** True if the server said that the listing is for everyone. */
  readonly isPublic: boolean;
  readonly bytes: number;
  /** The time from which the listing is stale and only helps to explain refusals, in milliseconds. */
  freshUntil: number;
}

interface Parts {
  readonly clock: Clock;
  readonly log: Log;
  readonly limits: Pick<ProxyLimits, 'toolRefreshIntervalMs'>;
  /** Receives every listing that is the same for all callers. Never throws and never waits. */
  readonly onShared?: ((server: CalledServer, tools: readonly ListedTool[]) => void) | undefined;
}

/** Caches the tools that servers list, per view. In memory and bounded. */
export class ToolDefinitions {
  readonly #parts: Parts;
  readonly #known = new LRUCache<string, KnownTools>({
    max: MAX_LISTINGS,
    maxSize: MAX_BYTES,
    sizeCalculation: ({ bytes }) => bytes + 1,
  });
  readonly #refreshedAt = new LRUCache<string, number>({ max: 10_000 });
  readonly #refreshing = new SingleFlight<void>();
  /** The times until which calls do not wait for a listing that was late before. */
  readonly #slowUntil = new LRUCache<string, number>({ max: 10_000 });

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Returns the last listing for this view, fresh or stale. */
  known(view: View): KnownTools | undefined {
    const shared = this.#known.get(sharedKey(view));
    if (view.connectionKey === undefined) return shared;
    return this.#known.get(keyOf(view)) ?? (shared?.isPublic ? shared : undefined);
  }

  /** Returns the last listing for this view if it is still fresh. */
  fresh(view: View): KnownTools | undefined {
    const known = this.known(view);
    return known && this.#parts.clock.now() < known.freshUntil ? known : undefined;
  }

  /** Returns a tool's input schema: the server's own, otherwise the catalogue's. */
  schemaOf(view: View, name: unknown): unknown {
    if (typeof name !== 'string') return undefined;
    return (
      this.known(view)?.schemas.get(name) ?? view.server.tools?.find(tool => tool.name === name)?.input_schema
    );
  }

  /** Returns the tool that a request calls if any listing has it: unknown names may be any text. */
  calledBy(view: View, { method, params }: Request): string | undefined {
    const name = method === 'tools/call' ? params?.['name'] : undefined;
    return typeof name === 'string' && this.schemaOf(view, name) !== undefined ? name : undefined;
  }

  /** Stores a complete listing. Returns the usable tools. */
  keep(view: View, listing: Listing): ListedTool[] {
    const { server } = view;
    const unusable = new Map<string, string>();
    const overlarge = new Set(listing.tools.filter(({ inputSchema }) => isOverlarge(inputSchema)));
    const tools = listing.tools.filter(tool => {
      const { name, inputSchema } = tool;
      // Only revision 2026-07-28 has the extension; elsewhere the member has no meaning.
      const problem = listing.isModern && !overlarge.has(tool) ? headerProblem(inputSchema) : undefined;
      if (problem === undefined) return true;
      unusable.set(name, problem);
      this.#parts.log.warn(
        { serverId: server.id, tool: sanitise(name), reason: problem },
        'skipped a tool in the listing',
      );
      return false;
    });
    const isShared = view.connectionKey === undefined || listing.isPublic;
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

  /** Returns whether a listing is worth waiting for: the last one was in time. */
  mayWait(view: View): boolean {
    return this.#parts.clock.now() >= (this.#slowUntil.get(keyOf(view)) ?? -Infinity);
  }

  /** Records that a call waited for a listing in vain. */
  noteSlow(view: View): void {
    this.#slowUntil.set(keyOf(view), this.#parts.clock.now() + SLOW_MS);
  }

  /** Records the server's notification that its tools have changed. */
  markStale(view: View): void {
    for (const key of [sharedKey(view), keyOf(view)]) {
      const known = this.#known.peek(key);
      if (known) known.freshUntil = -Infinity;
    }
  }

  /**
   * Refreshes the tools: one listing at a time, and at most one a minute for each view. Failures are only logged. Resolves,
   * and never rejects, when no listing is running any more.
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
        if (!(error instanceof Stopping))
          log.info({ err: error, serverId: view.server.id }, 'failed to refresh tool definitions');
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

const sharedKeys = new WeakMap<CalledServer, string>();

/** Returns a key that is the same for every version of a server's entry with one address. */
function sharedKey({ server }: View): string {
  let key = sharedKeys.get(server);
  if (key === undefined) sharedKeys.set(server, (key = `${server.id} ${server.remoteUrl}`));
  return key;
}

const keyOf = (view: View) =>
  view.connectionKey === undefined
    ? sharedKey(view)
    : JSON.stringify([
        sharedKey(view),
        view.caller.tenantId,
        view.caller.subject?.userId,
        view.connectionKey,
      ]);
