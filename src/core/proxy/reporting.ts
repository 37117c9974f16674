import type { ErrorCode, SwitchboardError } from '../../errors.ts';
import type { CallKind, Metrics } from '../metrics.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Caller } from '../access/caller.ts';
import type { CallOutcome as ClaimedOutcome, ClaimedCall } from '../feedback-types.ts';
import type { CallOutcome, EndedCall } from '../identity/calls.ts';
import { NotAdmitted } from './admission.ts';
import { errorOf, glimpseOf, type Params, type RpcAnswer, type UpstreamReply } from './upstream/envelope.ts';
import { HttpFailure } from './upstream/failures.ts';
import { isObject } from '../../platform/json/limits.ts';
import { activeSpan, traced, type Span, type TraceContext } from '../../platform/telemetry/tracing.ts';
import type { ServerHead } from '../catalogue/entry.ts';
import { urlOf } from './upstream/http.ts';

/** The server of a call. */
export interface Target {
  readonly serverId: string;
  /** The search that led to the call, according to the caller. */
  readonly queryLogId?: string | undefined;
}

/** One operation on a server, for counting and reporting. */
export interface Operation<T> extends Target {
  readonly tool?: string | undefined;
  /** Shown to users for a request that calls no tool: `shownMethod`, or `BATCH`. */
  readonly method?: string | undefined;
  /** The kind under which its outcome is counted. Absent for open streams. */
  readonly kind?: CallKind | undefined;
  /** Present for pass-through requests. */
  readonly isPassed?: true;
  /** Classifies its result. Absent for listings and similar operations, which are not usage. */
  readonly classify?: ((result: T) => Evidence) | undefined;
}

export interface Reports {
  /**
   * Called when the outcome of an operation shows whether the server works; not for listings, refusals and disconnected
   * callers. Must not throw.
   */
  readonly onOutcome?: (outcome: { serverId: string; tenantId: string; ok: boolean }) => void;
  /**
   * Called with the response of a tool that ran without an error although the call carried no credential; not for pass-through
   * clients. Must not throw.
   */
  readonly onOpenResult?: (server: ServerHead, answer: { readonly result: unknown }) => void;
  /** Called when a call for a user has ended; with a listing only if a connection was missing. Must not throw. */
  readonly onUserCall?: (call: EndedCall) => void;
  /** Called when a call that names a search has ended, unless its caller disconnected. Must not throw. */
  readonly onClaimedCall?: (call: ClaimedCall) => void;
}

interface Parts extends Reports {
  readonly log: Log;
  readonly metrics?: Metrics | undefined;
  /** The proxy's own timeout for a call. */
  readonly totalTimeoutMs: number;
}

/** Reports the outcome of operations: to the metrics, the log, search and feedback. */
export class Reporter {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  succeeded<T>(caller: Caller, operation: Operation<T>, result: T, startedAtMs: number): void {
    const ok = operation.classify?.(result);
    this.#count(operation, ok === false ? 'upstream_error' : 'ok', startedAtMs);
    this.#tell(caller, operation, ok, operation.classify ? 'inconclusive' : 'listed');
    if (caller.subject) this.#note(caller, operation, outcomeOf(operation, result, ok));
  }

  /** @param reply the response to a request of any method that carried no credential */
  answeredOpenly(server: ServerHead, method: string, reply: UpstreamReply): void {
    const { answer } = reply;
    if (method !== 'tools/call' || !('result' in answer) || classifyReply(reply) !== true) return;
    this.#parts.onOpenResult?.(server, answer);
  }

  aborted(caller: Caller, operation: Operation<never>, startedAtMs: number): void {
    this.#count(operation, 'aborted', startedAtMs);
    this.#note(caller, operation, 'stopped');
  }

  failed(caller: Caller, operation: Operation<never>, error: SwitchboardError, startedAtMs: number): void {
    const { log, totalTimeoutMs } = this.#parts;
    this.#count(operation, error.code, startedAtMs);
    const isShortened = (caller.timeoutMs ?? Infinity) < totalTimeoutMs / 2;
    const how = { isShortened, isPassed: operation.isPassed === true };
    const isServers = isFaultOfServer(error);
    this.#tell(caller, operation, isServers ? classifyFailure(error, how) : undefined, 'inconclusive');
    this.#note(caller, operation, OUTCOMES[error.code] ?? (isServers ? 'failed' : 'refused'));
    const fields = {
      serverId: operation.serverId,
      tenantId: caller.tenantId,
      requestId: caller.requestId,
      code: error.code,
      err: error.cause,
    };
    if (isServers) log.info(fields, 'upstream call failed');
    else if (error.code === 'internal') log.error(fields, 'proxied call failed');
    else log.info(fields, 'proxied call refused');
  }

  #count({ kind }: Operation<never>, outcome: ErrorCode | 'ok' | 'aborted', startedAtMs: number): void {
    if (kind) this.#parts.metrics?.calls.ended(kind, outcome, performance.now() - startedAtMs);
  }

  /** Notes a call for its user, if it has one. */
  #note({ subject, keyId }: Caller, operation: Operation<never>, outcome: CallOutcome): void {
    const { serverId, classify, method, tool = method } = operation;
    if (!subject || tool === undefined) return;
    if (classify || method === BATCH || outcome === 'not_connected')
      this.#parts.onUserCall?.({ subject, keyId, serverId, tool, outcome });
  }

  #tell(
    { tenantId }: Caller,
    { serverId, queryLogId, tool, classify }: Operation<never>,
    ok: Evidence,
    otherwise: Extract<ClaimedOutcome, 'listed' | 'inconclusive'>,
  ): void {
    const { onOutcome, onClaimedCall } = this.#parts;
    if (classify && ok !== undefined) onOutcome?.({ serverId, tenantId, ok });
    if (queryLogId === undefined) return;
    const conclusion = ok === true ? 'success' : 'failure';
    const outcome = ok === undefined ? otherwise : conclusion;
    onClaimedCall?.({ queryLogId, tenantId, serverId, tool, outcome });
  }
}

/** Stands for the messages of a pass-through client in one body, which is not looked into. */
export const BATCH = 'several requests';

/** The outcomes of errors that say more than whose fault it is. */
const OUTCOMES: Partial<Record<ErrorCode, CallOutcome>> = {
  connection_required: 'not_connected',
  upstream_input_required: 'answered',
};

/** Returns what a user sees of a call that got a result. Passed-through results are not looked into: theirs is the HTTP status. */
function outcomeOf({ isPassed }: Operation<never>, result: unknown, ok: Evidence): CallOutcome {
  if (isPassed) return typeof result === 'number' && classifyStatus(result) === true ? 'answered' : 'failed';
  if (ok === true) return 'worked';
  const reply = isObject(result) && isObject(result['answer']) ? result['answer']['result'] : result;
  return isObject(reply) && reply['resultType'] === 'input_required' ? 'answered' : 'failed';
}

/**
 * Returns whether the server caused the error: an unavailable identity provider says nothing about the servers that need its
 * tokens, nor does a call that was never sent.
 */
const isFaultOfServer = (error: SwitchboardError): boolean =>
  error.isUpstreamFailure && error.code !== 'provider_unavailable' && !(error instanceof NotAdmitted);

/** The passed-through methods that count as usage of the server. */
const PASSED_USES: ReadonlySet<string | undefined> = new Set([
  'tools/call',
  'resources/read',
  'prompts/get',
  'completion/complete',
]);
export const isPassedUse = (method: string | undefined): boolean => PASSED_USES.has(method);

/** REST has already refused unsupported methods. All others count as usage, except these. */
export const isUse = (method: string): boolean => !/^(ping|server\/discover|.*\/list)$/.test(method);

/**
 * Evidence about a server from the outcome of a call: it works (true), it failed by its own fault (false), or nothing
 * (undefined). Search ranks by it, so an outcome that the caller may have caused shows nothing: wrong arguments, a missing
 * sign-in or permission, rate limits, the caller's own timeout. Error texts are classified by heuristics. A wrong guess does
 * little harm, because each tenant's calls count up to a cap.
 */
type Evidence = boolean | undefined;

/** The maximum number of characters examined in a tool's error text. */
const MAX_TEXT_CHARS = 2_000;

/** Words that blame the caller, or ask for a sign-in or for patience. */
const BLAMES_CALLER = new RegExp(
  [
    String.raw`\b(?:invalid|unexpected|missing|unknown|unrecognized|unsupported|malformed|required|bad request)\b`,
    String.raw`\bmust (?:be|have|not)\b|\bnot (?:found|allowed|permitted)\b|\bno such\b|\bdo(?:es)?(?: not|n['’]t) exist\b|\bno (?:results|matches)\b`,
    String.raw`\b(?:un)?auth(?:enticat|ori[sz]|\b)|\b(?:sign|log)[ -]?in\b|\bapi[ _-]?key\b|\btoken\b|\bcredential|\bpermission|\bforbidden\b|\baccess denied\b`,
    String.raw`\brate[ -]?limit|\btoo many requests\b|\bquota\b|\bpayment\b|-32602|\b(?:40[0-4]|409|422|429)\b`,
  ].join('|'),
  'i',
);

/** JSON-RPC's internal error, and the SDKs' codes for a closed connection and a timeout. */
const SERVER_FAULTS: ReadonlySet<number> = new Set([-32_603, -32_000, -32_001]);

const NO_EVIDENCE: ReadonlySet<ErrorCode> = new Set([
  'upstream_unauthorized',
  'upstream_forbidden',
  'upstream_rate_limited',
  'upstream_input_required',
]);

/** Node's codes for a failure of our own network. */
const OUR_NETWORK: ReadonlySet<unknown> = new Set(['EAI_AGAIN', 'ENETUNREACH', 'ENETDOWN']);

/** These statuses mean that there is nothing at the catalogued URL. */
const GONE: ReadonlySet<number> = new Set([404, 405, 410]);

/**
 * Classifies the failure of a call to an upstream.
 * @param how `isShortened`: the caller waits for less than half of the default timeout; `isPassed`: the call was passed
 * through, where 404 and 405 may mean an ended session or an unsupported transport
 */
export function classifyFailure(
  error: SwitchboardError,
  { isShortened, isPassed }: { isShortened: boolean; isPassed: boolean },
): Evidence {
  if (NO_EVIDENCE.has(error.code) || isOurNetwork(error)) return undefined;
  if (error.code === 'upstream_timeout' && isShortened) return undefined;
  if (error instanceof HttpFailure)
    return !isPassed && GONE.has(error.httpStatus) ? false : classifyStatus(error.httpStatus);
  if (error.code === 'upstream_error') return classifyError(error.upstreamError);
  return false;
}

/** Classifies a passed-through response by its HTTP status. */
export function classifyStatus(status: number): Evidence {
  if (status >= 200 && status <= 299) return true;
  const isCallers = status >= 400 && status <= 499;
  return isCallers ? undefined : false;
}

export const classifyReply = ({ answer }: Pick<UpstreamReply, 'answer'>): Evidence =>
  'error' in answer ? classifyError(answer.error) : classifyResult(glimpseOf(answer));

/** Classifies a result of any method. `isError` is the tool's own failure. */
export function classifyResult(result: unknown): Evidence {
  if (!isObject(result) || result['isError'] !== true)
    return isObject(result) && result['resultType'] === 'input_required' ? undefined : true;
  const { content } = result;
  const blocks: unknown[] = Array.isArray(content) ? content : [];
  return blocks.some(block => isObject(block) && blamesCaller(block['text'])) ? undefined : false;
}

function classifyError(error: unknown): Evidence {
  if (!isObject(error) || !SERVER_FAULTS.has(Number(error['code']))) return undefined;
  return blamesCaller(error['message']) ? undefined : false;
}

const blamesCaller = (text: unknown): boolean =>
  typeof text === 'string' && BLAMES_CALLER.test(text.slice(0, MAX_TEXT_CHARS));

const isOurNetwork = ({ cause }: SwitchboardError): boolean =>
  isObject(cause) && OUR_NETWORK.has(cause['code']);

/** Returns the tool that a request calls, if any. */
export function toolNamed(method: string, params: Params | undefined): string | undefined {
  const name = method === 'tools/call' ? params?.['name'] : undefined;
  return typeof name === 'string' ? name.slice(0, 1_024) : undefined;
}

/** The methods of MCP's revisions. Span names must be few, but callers may send anything. */
const METHODS: ReadonlySet<string> = new Set([
  'initialize',
  'ping',
  'server/discover',
  'tools/list',
  'tools/call',
  'prompts/list',
  'prompts/get',
  'resources/list',
  'resources/templates/list',
  'resources/read',
  'resources/subscribe',
  'resources/unsubscribe',
  'completion/complete',
  'logging/setLevel',
  'subscriptions/listen',
  'tasks/get',
  'tasks/list',
  'tasks/result',
  'tasks/update',
  'tasks/cancel',
  'notifications/initialized',
  'notifications/cancelled',
  'notifications/progress',
  'notifications/roots/list_changed',
]);

/** Returns the method, or a common name for unknown methods. */
export const knownMethod = (method: string): string => (METHODS.has(method) ? method : '_OTHER');

/** Returns the method for users, who are shown no word of a caller's own. */
export const shownMethod = (method: string): string => (METHODS.has(method) ? method : 'another request');

interface Replied {
  readonly status: number;
  readonly answer?: RpcAnswer | undefined;
}

interface TracedCall {
  readonly server: ServerHead;
  /** The caller's method; undefined for a response or a stream, which has none. */
  readonly method: string | undefined;
  readonly httpMethod?: string;
  /** The tool, if its server is known to have it. */
  readonly tool?: string | undefined;
  /** The number of the attempt, from 1. */
  readonly attempt?: number;
}

/**
 * Traces one call from the client's side (OpenTelemetry, "Semantic conventions for MCP"). The span contains nothing of its content.
 */
export function tracedCall<T>(
  call: () => TracedCall,
  work: (span: Span | undefined) => Promise<T>,
): Promise<T> {
  if (activeSpan() === undefined) return work(undefined);
  const { server, method, httpMethod = 'POST', tool, attempt } = call();
  const known = method === undefined ? undefined : knownMethod(method);
  const url = urlOf(server.remoteUrl);
  const name = [known ?? httpMethod, tool].filter(part => part !== undefined).join(' ');
  return traced(name, work, () => ({
    kind: 'client',
    attributes: {
      'http.request.method': httpMethod,
      'mcp.method.name': known,
      'gen_ai.tool.name': tool,
      'gen_ai.operation.name': known === 'tools/call' ? 'execute_tool' : undefined,
      'server.address': url.hostname,
      'server.port': Number(url.port) || (url.protocol === 'https:' ? 443 : 80),
      'switchboard.server.id': server.id,
      'switchboard.attempt': attempt,
    },
  }));
}

/** Returns the trace context for a call to a server. */
export const traceContext = (): TraceContext | undefined => activeSpan()?.context;

interface Spoken {
  /** The protocol revision. */
  readonly version: string;
  readonly stream?: unknown;
}

/** Records the outcome of a call that got a response. @param session absent if the revision is not known */
export function noteReply(span: Span, { status, answer }: Replied, session?: Spoken): void {
  if (session)
    span.set({
      'mcp.protocol.version': session.version,
      'switchboard.transport': session.stream === undefined ? 'streamable-http' : 'sse',
    });
  const error = errorOf(answer);
  span.set({ 'http.response.status_code': status, 'rpc.response.status_code': error && String(error.code) });
  const result = glimpseOf(answer);
  if (error) span.failed(String(error.code));
  else if (isObject(result) && result['isError'] === true) span.failed('tool_error');
  else if (status >= 400) span.failed(String(status));
}
