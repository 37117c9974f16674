import { SwitchboardError, type ErrorCode } from '../../errors.ts';
import { systemClock, type Clock } from '../../platform/clock.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../metrics.ts';
import type { Caller } from '../access/caller.ts';
import type { Catalogue } from '../catalogue/catalogue.ts';
import type { Server } from '../catalogue/entry.ts';
import { warnedTools } from '../catalogue/tools/warnings.ts';
import type { Credentials } from '../identity/connections/credentials.ts';
import type { Guard } from '../../platform/outbound/guard.ts';
import { toFailure } from '../failure.ts';
import type { Sealing } from '../../platform/sealing.ts';
import { withAccessAdvice } from './unauthorized-hint.ts';
import { Admission, NotAdmitted } from './admission.ts';
import { asker, type Ask } from './with-user-token.ts';
import { CallerAbortError } from '../../platform/race-abort.ts';
import { Budget } from './upstream/deadline.ts';
import { noteReply, tracedCall } from './call-span.ts';
import { CheckedCalls } from './arguments/checked-call.ts';
import type { Params, RpcAnswer } from './upstream/envelope.ts';
import { stopping } from './upstream/failures.ts';
import { DEFAULT_LIMITS, type ProxyLimits } from './limits.ts';
import { methodOf } from './jsonrpc-peek.ts';
import { PassThrough, type PassedRequest } from './pass-through.ts';
import type { Sink } from './upstream/streamed-response.ts';
import { ToolDefinitions } from './tool-definitions.ts';
import {
  listAllTools,
  progressOf,
  toolCallParams,
  toolOutcome,
  type InputRequired,
  type ListedTool,
  type Listing,
  type ToolCall,
  type ToolResult,
} from './tools.ts';
import type { UpstreamCall } from './upstream/upstream-requests.ts';
import { Upstreams } from './upstream/upstreams.ts';
import { isPassedUse, isUse, report, type Reports, type Target, type Use } from './call-reporting.ts';
import { judgeFailure, judgeReply, judgeResult, judgeStatus, toolNamed } from './classify-outcome.ts';
import { Wire } from './upstream/http-client.ts';

export type { ProxyLimits } from './limits.ts';
export type { InputRequired, ListedTool, Progress, ToolResult } from './tools.ts';
export { CallerAbortError } from '../../platform/race-abort.ts';
export { NotReadOnly } from './arguments/checked-call.ts';

export interface ProxyOptions extends Reports {
  readonly catalogue: Pick<Catalogue, 'require'>;
  /** Says what a call may carry for its user, or why it cannot be made. */
  readonly credentials: Pick<Credentials, 'forCall' | 'renewed'>;
  readonly sealing: Pick<Sealing, 'seal' | 'open'>;
  readonly guard: Guard;
  readonly log: Log;
  readonly clock?: Clock;
  readonly metrics?: Metrics;
  /** Told of every listing of a server's tools that is the same for everybody. Must not throw. */
  readonly onSharedTools?: (server: Server, tools: readonly ListedTool[]) => void;
  readonly limits?: Partial<ProxyLimits> | undefined;
}

/**
 * Calls to catalogued servers. Every method throws SwitchboardError: `server_not_found`, `server_inactive`, a refusal, what
 * `Credentials.forCall` refuses with, or `upstream_*`; and rejects with CallerAbortError (name `AbortError`) once `caller.signal` is aborted.
 */
export interface Proxy {
  /** Any JSON-RPC request. The upstream's own result or error, unchanged. */
  call(caller: Caller, input: { method: string; params?: Params } & Target): Promise<RpcAnswer>;
  /**
   * `InputRequired` only for a call with `capabilities`.
   * @throws SwitchboardError `upstream_error` for a JSON-RPC error; a result with `isError` is a result.
   */
  callTool(
    caller: Caller,
    input: Target & ToolCall & { readonly capabilities: Params },
  ): Promise<ToolResult | InputRequired>;
  callTool(caller: Caller, input: Target & ToolCall & { readonly capabilities?: never }): Promise<ToolResult>;
  /** All pages. */
  listTools(caller: Caller, input: Target): Promise<{ tools: ListedTool[] }>;
  /**
   * One HTTP request of a client that speaks with the server itself (`/mcp/{server_id}`), its answer streamed to the sink.
   * Resolves at the answer's end. What it throws before the sink is touched is for the face to say; afterwards the sink has
   * been destroyed.
   */
  passThrough(caller: Caller, request: PassedRequest, sink: Sink): Promise<void>;
  /** Ends passed-through streams that stay open, and sessions without calls: a stop must not wait for them as it does for calls. */
  endIdle(): void;
  /** Ends the sessions with upstreams, in bounded time, and every connection. Calls then throw `unavailable`. */
  close(): Promise<void>;
  /** Closes sessions that have been idle for too long; runs by itself now and then. */
  sweep(): void;
  /** Open sessions with upstreams of revisions before 2026-07-28. */
  readonly sessionCount: number;
}

/** How long a listing may take that a call waits for, in milliseconds. */
const IN_SLOT_MS = 10_000;

/** Methods that make no sense in a one-shot call, and what to use instead. */
const REFUSED: readonly (readonly [RegExp, string])[] = [
  [/^initialize$/, 'the handshake with the server is made for you. Call the method you need directly'],
  [
    /^notifications\//,
    'a notification has no answer, and the session it belongs to is not yours. Leave it out',
  ],
  [
    /^subscriptions\//,
    'a one-shot call cannot receive later messages. Ask again when you need to know, for example by tools/list',
  ],
  [
    /^resources\/(un)?subscribe$/,
    'a one-shot call cannot receive later messages. Read the resource again with resources/read',
  ],
  [/^logging\/setLevel$/, 'log messages are not passed on by a one-shot call. Leave it out'],
];

export function createProxy(options: ProxyOptions): Proxy {
  const { catalogue, credentials, sealing, log, metrics } = options;
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const clock = options.clock ?? systemClock;
  const wire = new Wire(options.guard, limits);
  const definitions = new ToolDefinitions({ clock, log, limits, onShared: options.onSharedTools });
  const checked = new CheckedCalls(definitions, limits);
  const upstreams = new Upstreams(wire, limits, clock, log, definitions);
  const admission = new Admission(limits, clock, log);
  const passThrough = new PassThrough({ credentials, sealing, admission, wire, upstreams, limits, clock });
  metrics?.watch('switchboard_upstream_slots', () => admission.slots);
  metrics?.watch('switchboard_upstream_circuits', () => admission.circuits);
  metrics?.watch('switchboard_upstream_sessions', () => upstreams.sessionUse);
  let closing: Promise<void> | undefined;
  let progressTokens = 0;

  /** Runs one operation on one server within one budget. */
  function run<T>(caller: Caller, use: Use<T>, work: (ask: Ask, budget: Budget) => Promise<T>): Promise<T> {
    const admitted = async (server: Server) => {
      using budget = new Budget(caller.timeoutMs ?? limits.totalTimeoutMs, caller.signal);
      const ask = async () => work(await asker({ caller, server, credentials, upstreams }, budget), budget);
      // Awaited here: the budget must not end before the work.
      return await admission.run(server, caller, budget.signal, ask);
    };
    return track(caller, use, admitted);
  }

  /** Reports how work on a server ends. */
  async function track<T>(caller: Caller, use: Use<T>, work: (server: Server) => Promise<T>): Promise<T> {
    if (closing) throw stopping();
    const { serverId } = use;
    const server = catalogue.require(serverId);
    const { tenantId } = caller;
    const startedAt = performance.now();
    const ended = (outcome: ErrorCode | 'ok' | 'aborted') =>
      use.kind && metrics?.calls.ended(use.kind, outcome, performance.now() - startedAt);
    try {
      const result = await work(server);
      const ok = use.judge?.(result);
      ended(ok === false ? 'upstream_error' : 'ok');
      report(options, tenantId, use, ok, use.judge ? 'inconclusive' : 'listed');
      return result;
    } catch (thrown) {
      if (thrown instanceof CallerAbortError) {
        ended('aborted');
        throw thrown;
      }
      const error = withAccessAdvice(toFailure(thrown), server.auth);
      ended(error.code);
      const fields = {
        serverId,
        tenantId,
        requestId: caller.requestId,
        code: error.code,
        err: error.cause,
      };
      const isShortened = (caller.timeoutMs ?? Infinity) < limits.totalTimeoutMs / 2;
      const how = { isShortened, isPassed: use.isPassed === true };
      const ok = isFaultOfServer(error) ? judgeFailure(error, how) : undefined;
      report(options, tenantId, use, ok, 'inconclusive');
      if (isFaultOfServer(error)) log.info(fields, 'upstream call failed');
      else if (error.code === 'internal') log.error(fields, 'proxied call failed');
      else log.info(fields, 'proxied call refused');
      throw error;
    }
  }

  const listTools = (ask: Ask) => listAllTools(params => ask('tools/list', params), limits);

  /**
   * On our own account, with the caller's account.
   * @param where `in-slot`: for a call that has its slot and does not send before it has the listing.
   */
  async function listAnew(caller: Caller, server: Server, where: 'in-slot' | undefined): Promise<Listing> {
    if (closing) throw stopping();
    // In a call's slot, it must not outlast the call by much.
    const timeoutMs =
      where === 'in-slot' ? Math.min(IN_SLOT_MS, limits.totalTimeoutMs) : limits.totalTimeoutMs;
    using budget = new Budget(timeoutMs);
    const lister = { ...caller, signal: budget.signal, timeoutMs };
    const asking = { caller: lister, server, credentials, upstreams };
    const list = async () => listTools(await asker(asking, budget));
    // Awaited here, as above.
    return where === 'in-slot' ? await list() : await admission.run(server, lister, budget.signal, list);
  }

  return {
    async call(caller, { method, params, ...target }) {
      refuse(method);
      const judge = isUse(method) ? judgeReply : undefined;
      const use = { ...target, kind: 'call' as const, tool: toolNamed(method, params), judge };
      const { answer } = await run(caller, use, ask => ask(method, params));
      return answer;
    },

    callTool: ((caller: Caller, { serverId, queryLogId, ...call }: Target & ToolCall) => {
      const progressToken = `progress-${++progressTokens}`;
      const { onProgress, capabilities } = call;
      const onNotification: UpstreamCall['onNotification'] =
        onProgress &&
        ((method, notified) => {
          const progress = progressOf(progressToken, method, notified);
          if (progress) onProgress(progress);
        });
      const work = (ask: Ask, budget: Budget) =>
        checked.run(ask.view, call, {
          send: async args => {
            const sent = args === undefined ? call : { ...call, arguments: args };
            const reply = await ask('tools/call', toolCallParams(sent, progressToken), onNotification);
            return toolOutcome(reply, capabilities !== undefined);
          },
          refresh: where => definitions.refreshSoon(ask.view, () => listAnew(caller, ask.view.server, where)),
          budget,
        });
      const use = { serverId, queryLogId, kind: 'call' as const, tool: call.name, judge: judgeResult };
      return run(caller, use, work);
    }) as Proxy['callTool'],

    listTools(caller, target) {
      return run(caller, { ...target, kind: 'list' }, async ask => {
        const { view } = ask;
        const tools = definitions.keep(view, await listTools(ask));
        return {
          tools: view.connectionId === undefined ? warnedTools(view.server, tools, clock.now()) : tools,
        };
      });
    },

    async passThrough(caller, request, sink) {
      const method = request.body && methodOf(request.body);
      const judge = isPassedUse(method) ? judgeStatus : undefined;
      const kind = request.method === 'POST' && method !== 'subscriptions/listen' ? 'pass' : undefined;
      const pass = (server: Server) =>
        tracedCall(
          () => ({ server, method, httpMethod: request.method }),
          async span => {
            const status = await passThrough.run(caller, { server, request, method }, sink);
            if (span) noteReply(span, { status });
            return status;
          },
        );
      await track(caller, { serverId: request.serverId, kind, judge, isPassed: true }, pass);
    },

    endIdle() {
      passThrough.endStreams();
      upstreams.endIdle();
    },

    close() {
      closing ??= upstreams.close().then(() => wire.close());
      return closing;
    },

    sweep: () => upstreams.sweep(),

    get sessionCount() {
      return upstreams.sessionCount;
    },
  };
}

function refuse(method: string): void {
  const refusal = REFUSED.find(([pattern]) => pattern.test(method));
  if (refusal) throw new SwitchboardError('invalid_request', `${method} is not forwarded: ${refusal[1]}.`);
}

/** An identity provider that is down says nothing about the servers that want its tokens, nor does a call that never went out. */
const isFaultOfServer = (error: SwitchboardError): boolean =>
  error.isUpstreamFailure && error.code !== 'provider_unavailable' && !(error instanceof NotAdmitted);
