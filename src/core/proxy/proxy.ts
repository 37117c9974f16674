import { SwitchboardError } from '../../errors.ts';
import { CallerAbortError, systemClock, type Clock, type Cancellation } from '../../platform/time.ts';
import type { JsonParts } from '../../platform/json/limits.ts';
import type { Guard } from '../../platform/outbound/guard.ts';
import type { Sealing } from '../../platform/sealing.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../metrics.ts';
import type { Caller } from '../access/caller.ts';
import type { Catalogue } from '../catalogue/catalogue.ts';
import type { CalledServer } from '../catalogue/entry.ts';
import { warnedTools } from '../catalogue/tools/warnings.ts';
import type { Credentials } from '../identity/connections/credentials.ts';
import type { Credential } from '../identity/connections/holdings.ts';
import { Admission } from './admission.ts';
import { CheckedCalls } from './arguments/checked-call.ts';
import {
  BATCH,
  classifyReply,
  classifyResult,
  classifyStatus,
  isPassedUse,
  isUse,
  noteReply,
  Reporter,
  shownMethod,
  toolNamed,
  tracedCall,
  type Operation,
  type Reports,
  type Target,
} from './reporting.ts';
import { inspect, type Inspection } from './inspect.ts';
import { DEFAULT_LIMITS, type ProxyLimits } from './limits.ts';
import { callOf, isBatch, methodOf, type PassedCall } from './pass-through-messages.ts';
import { PassThrough, type PassedRequest } from './pass-through.ts';
import {
  listAllTools,
  progressListener,
  toolCallParams,
  ToolDefinitions,
  toolOutcome,
  toolResult,
  type InputRequired,
  type InteractiveToolCall,
  type ListedTool,
  type Listing,
  type ToolCall,
  type ToolResult,
  type View,
} from './tools.ts';
import { UpstreamClient, type UpstreamCall } from './upstream/client.ts';
import type { Params, RpcAnswer, UpstreamReply } from './upstream/envelope.ts';
import type { Sink } from './upstream/http-stream.ts';
import { HttpClient } from './upstream/http.ts';
import { fromThrown } from '../failure.ts';
import { withAccessAdvice } from './hints.ts';
import { Deadline } from './upstream/deadline.ts';
import { credentialAfterRefusal, type OperationContext } from './refused-credentials.ts';
import { refusalOf, Stopping } from './upstream/failures.ts';

export type { ProxyLimits } from './limits.ts';
export type { InputRequired, ListedTool, Progress, ToolResult } from './tools.ts';
export { CallerAbortError } from '../../platform/time.ts';
export { NotReadOnly } from './arguments/checked-call.ts';

export interface ProxyOptions extends Reports {
  readonly catalogue: Pick<Catalogue, 'readCalled'>;
  /** Returns the token for a user's call, or says why the call cannot be made. */
  readonly credentials: Pick<Credentials, 'forCall' | 'renewAfterRefusal'>;
  readonly sealing: Pick<Sealing, 'seal' | 'open'>;
  readonly guard: Guard;
  readonly log: Log;
  readonly clock?: Clock;
  readonly metrics?: Metrics;
  /** Receives every listing of a server's tools that is the same for all callers. Must not throw. */
  readonly onSharedTools?: (server: CalledServer, tools: readonly ListedTool[]) => void;
  readonly limits?: Partial<ProxyLimits> | undefined;
}

/**
 * Calls to catalogued servers. Every method throws SwitchboardError: `server_not_found`, `server_inactive`, a refusal, the refusals
 * of `Credentials.forCall`, or `upstream_*`. It rejects with CallerAbortError (name `AbortError`) once `caller.signal` is aborted.
 */
export interface McpProxy {
  /** Sends any JSON-RPC request. Returns the upstream's own result or error, unchanged. */
  call(caller: Caller, input: { method: string; params?: Params } & Target): Promise<RpcAnswer>;
  /**
   * Calls a tool. If it asks for input, throws `upstream_input_required`. A large result is returned as JSON.
   * @throws SwitchboardError `upstream_error` for a JSON-RPC error; a result with `isError` does not throw
   * @example
   * const result = await proxy.callTool(caller, { serverId: 'weather', name: 'forecast', arguments: { city: 'Bonn' } });
   */
  callTool(caller: Caller, input: Target & ToolCall): Promise<ToolResult | JsonParts>;
  /** Calls a tool for a caller that may be asked for input. @throws SwitchboardError `upstream_error` for a JSON-RPC error */
  callToolInteractively(
    caller: Caller,
    input: Target & InteractiveToolCall,
  ): Promise<ToolResult | InputRequired>;
  /** Returns all pages of a server's tools. */
  listTools(caller: Caller, input: Target): Promise<{ tools: ListedTool[] }>;
  /**
   * Forwards one HTTP request of a pass-through client (`/mcp/{server_id}`) and streams the response to the sink. Resolves when the
   * response ends. The caller renders an error thrown before the sink is used; after that the sink has been destroyed.
   */
  passThrough(caller: Caller, request: PassedRequest, sink: Sink): Promise<void>;
  /**
   * Lists a server's tools within 15 s, without a user. Does not count as a call.
   * @param credential one to try; without it, the server is asked without credentials
   * @throws the signal's reason once it aborts, and nothing else
   */
  inspect(server: CalledServer, signal: Cancellation, credential?: Credential): Promise<Inspection>;
  /** Ends open pass-through streams and idle sessions: shutdown must not wait for them. */
  endIdle(): void;
  /** Ends the upstream sessions, in bounded time, and every connection. Calls then throw `unavailable`. */
  close(): Promise<void>;
  /** Closes idle sessions; also runs automatically. */
  sweep(): void;
  /** The number of open sessions with upstreams of revisions before 2026-07-28. */
  readonly sessionCount: number;
}

export function createProxy(options: ProxyOptions): McpProxy {
  const { credentials, sealing, log, metrics, clock = systemClock } = options;
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const http = new HttpClient(options.guard, limits);
  const definitions = new ToolDefinitions({ clock, log, limits, onShared: options.onSharedTools });
  const upstream = new UpstreamClient({ http, limits, clock, log }, definitions);
  const admission = new Admission(limits, clock, log);
  const reporter = new Reporter({ ...options, totalTimeoutMs: limits.totalTimeoutMs });
  const calls = new Calls({ ...options, upstream, admission, reporter, limits });
  const checkedCalls = new CheckedCalls(definitions, limits);
  const passThrough = new PassThrough({ credentials, sealing, admission, http, upstream, limits, clock });
  metrics?.watch('switchboard_upstream_slots', () => admission.slots);
  metrics?.watch('switchboard_upstream_circuits', () => admission.circuits);
  metrics?.watch('switchboard_upstream_sessions', () => upstream.sessionUse);
  metrics?.watch('switchboard_streams', () => passThrough.streams);
  let closing: Promise<void> | undefined;
  let progressTokens = 0;

  /** @param read returns the outcome in the server's reply */
  const callTool = <Outcome extends ToolResult | InputRequired | JsonParts>(
    caller: Caller,
    { serverId, queryLogId, ...call }: Target & (ToolCall | InteractiveToolCall),
    read: (reply: UpstreamReply) => Outcome,
  ): Promise<Outcome> => {
    const token = `progress-${++progressTokens}`;
    const onNotification = progressListener(call, token);
    const kind = 'call' as const;
    const operation = { serverId, queryLogId, kind, tool: call.name, classify: classifyResult };
    return calls.run(caller, operation, (sender, deadline) =>
      checkedCalls.run(sender.view, call, {
        send: args =>
          sender.send('tools/call', toolCallParams(call, args ?? call.arguments, token), onNotification),
        read,
        refresh: where =>
          definitions.refreshSoon(sender.view, () => calls.listTools(caller, sender.view.server, where)),
        deadline,
      }),
    );
  };

  return {
    async call(caller, { method, params, ...target }) {
      requireForwardable(method);
      const classify = isUse(method) ? classifyReply : undefined;
      const named = { tool: toolNamed(method, params), method: shownMethod(method) };
      const operation = { ...target, ...named, kind: 'call' as const, classify };
      const { answer } = await calls.run(caller, operation, sender => sender.send(method, params));
      return answer;
    },

    callTool: (caller, input) => callTool(caller, input, toolResult),

    callToolInteractively: (caller, input) => callTool(caller, input, toolOutcome),

    listTools(caller, target) {
      return calls.run(caller, { ...target, kind: 'list', method: 'tools/list' }, async sender => {
        const { server, connectionKey } = sender.view;
        const tools = definitions.keep(sender.view, await calls.allTools(sender));
        return { tools: connectionKey === undefined ? warnedTools(server, tools, clock.now()) : tools };
      });
    },

    async passThrough(caller, request, sink) {
      const { body } = request;
      const passed = body && (caller.subject ? callOf(body) : { method: methodOf(body) });
      const method = passed?.method;
      const classify = isPassedUse(method) ? classifyStatus : undefined;
      const kind = request.method === 'POST' && method !== 'subscriptions/listen' ? 'pass' : undefined;
      const named = caller.subject && passed ? namesOf(passed, body) : {};
      const operation = { serverId: request.serverId, ...named, kind, classify, isPassed: true } as const;
      await calls.track(caller, operation, server =>
        tracedCall(
          () => ({ server, method, httpMethod: request.method }),
          async span => {
            const status = await passThrough.run(caller, { server, request, method }, sink);
            if (span) noteReply(span, { status });
            return status;
          },
        ),
      );
    },

    inspect: (server, signal, credential) =>
      inspect({ http, limits, clock, log }, server, signal, credential),

    endIdle() {
      passThrough.endStreams();
      upstream.endIdle();
    },

    close() {
      calls.stop();
      closing ??= upstream.close().then(() => http.close());
      return closing;
    },

    sweep: () => upstream.sweep(),

    get sessionCount() {
      return upstream.sessionCount;
    },
  };
}

/** Returns what a user's record calls a passed-through request; nothing for a response. */
function namesOf({ method, tool }: PassedCall, body: Buffer): Pick<Operation<never>, 'tool' | 'method'> {
  if (method === undefined) return isBatch(body) ? { method: BATCH } : {};
  return { tool, method: shownMethod(method) };
}

/** Methods that do not work in a single call, and alternatives. */
const REFUSED: readonly (readonly [RegExp, string])[] = [
  [/^initialize$/, 'Switchboard does the handshake with the server. Call the method you need directly'],
  [
    /^notifications\//,
    'notifications have no response and belong to a session that Switchboard manages. Omit it',
  ],
  [
    /^subscriptions\//,
    'a single call cannot receive later messages. Poll instead, for example with tools/list',
  ],
  [
    /^resources\/(un)?subscribe$/,
    'a single call cannot receive later messages. Read the resource again with resources/read',
  ],
  [/^logging\/setLevel$/, 'a single call does not forward log messages. Omit it'],
];

/** @throws SwitchboardError `invalid_request` for a method that does not work in a single call */
function requireForwardable(method: string): void {
  const refusal = REFUSED.find(([pattern]) => pattern.test(method));
  if (refusal) throw new SwitchboardError('invalid_request', `${method} is not forwarded: ${refusal[1]}.`);
}

interface Parts {
  readonly catalogue: Pick<Catalogue, 'readCalled'>;
  readonly credentials: Pick<Credentials, 'forCall' | 'renewAfterRefusal'>;
  readonly upstream: Pick<UpstreamClient, 'request'>;
  readonly admission: Pick<Admission, 'enter'>;
  readonly reporter: Reporter;
  readonly limits: ProxyLimits;
}

/** A listing that a call waits for in its slot must not outlast the call by much. */
const LISTING_IN_SLOT_MS = 10_000;

/** Runs operations on catalogued servers: admitted, within a deadline, with the user's token, and reported. */
class Calls {
  readonly #parts: Parts;
  #isStopped = false;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Refuses every further operation. */
  stop(): void {
    this.#isStopped = true;
  }

  /**
   * Runs one operation on one server.
   * @throws SwitchboardError as the methods of `McpProxy` do; CallerAbortError once the caller has disconnected
   */
  run<T>(
    caller: Caller,
    operation: Operation<T>,
    work: (sender: Sender, deadline: Deadline) => Promise<T>,
  ): Promise<T> {
    return this.track(caller, operation, async server => {
      const deadline = new Deadline(caller.timeoutMs ?? this.#parts.limits.totalTimeoutMs, caller.signal);
      try {
        return await this.#admitted({ caller, server, deadline }, sender => work(sender, deadline));
      } finally {
        deadline[Symbol.dispose]();
      }
    });
  }

  /** Runs the work on a catalogued server and reports its outcome. */
  async track<T>(
    caller: Caller,
    operation: Operation<T>,
    work: (server: CalledServer) => Promise<T>,
  ): Promise<T> {
    if (this.#isStopped) throw new Stopping();
    const { catalogue, reporter } = this.#parts;
    const startedAtMs = performance.now();
    const server = await catalogue.readCalled(operation.serverId);
    try {
      const result = await work(server);
      reporter.succeeded(caller, operation, result, startedAtMs);
      return result;
    } catch (thrown) {
      if (thrown instanceof CallerAbortError) {
        reporter.aborted(caller, operation, startedAtMs);
        throw thrown;
      }
      const error = withAccessAdvice(fromThrown(thrown), server);
      reporter.failed(caller, operation, error, startedAtMs);
      throw error;
    }
  }

  /**
   * Lists a server's tools with the caller's account, on our own behalf: it is not reported, and no caller can cancel it.
   * @param where `in-slot` for a call that has its slot and waits for the listing
   */
  async listTools(caller: Caller, server: CalledServer, where: 'in-slot' | undefined): Promise<Listing> {
    if (this.#isStopped) throw new Stopping();
    const { totalTimeoutMs } = this.#parts.limits;
    const timeoutMs = where === 'in-slot' ? Math.min(LISTING_IN_SLOT_MS, totalTimeoutMs) : totalTimeoutMs;
    using deadline = new Deadline(timeoutMs);
    const lister = { ...caller, signal: deadline.signal, timeoutMs };
    const context = { caller: lister, server, deadline };
    const list = (sender: Sender) => this.allTools(sender);
    // Awaited here: the deadline must not end before the work.
    return where === 'in-slot' ? await this.#withSender(context, list) : await this.#admitted(context, list);
  }

  /** Returns all pages of a server's tools. */
  allTools(sender: Sender): Promise<Listing> {
    return listAllTools(params => sender.send('tools/list', params), this.#parts.limits);
  }

  /**
   * Runs the work in a slot of its server. Nothing is awaited that is there at once, because each promise would be a measurable
   * part of a call; `using` would cost even more (Node 24).
   */
  async #admitted<T>(context: OperationContext, work: (sender: Sender) => Promise<T>): Promise<T> {
    const { caller, server, deadline } = context;
    const admission = this.#parts.admission.enter(server, caller, deadline.signal);
    const pass = admission instanceof Promise ? await admission : admission;
    try {
      const result = await this.#withSender(context, work);
      pass.answered();
      return result;
    } catch (error) {
      pass.failed(error);
      throw error;
    } finally {
      pass.giveBack();
    }
  }

  /** Looks up the user's token and runs the work with it. @throws SwitchboardError like `Credentials.forCall` */
  #withSender<T>(context: OperationContext, work: (sender: Sender) => Promise<T>): Promise<T> {
    const lookup = this.#parts.credentials.forCall(context.caller, context.server);
    const workWith = (credential: Credential | undefined) =>
      work(new Sender(this.#parts, context, credential));
    return lookup instanceof Promise ? context.deadline.wait(lookup).then(workWith) : workWith(lookup);
  }
}

/**
 * Sends the requests of one operation to its server. The user's token is looked up once, before anything is sent. If the
 * server refuses it (so nothing ran), the request is repeated if there is a newer token.
 */
class Sender {
  /** The responses apply to this view of the server. */
  readonly view: View;
  readonly #parts: Pick<Parts, 'credentials' | 'upstream' | 'reporter'>;
  readonly #context: OperationContext;
  #credential: Credential | undefined;
  #refusals = 0;

  constructor(
    parts: Pick<Parts, 'credentials' | 'upstream' | 'reporter'>,
    context: OperationContext,
    credential: Credential | undefined,
  ) {
    this.#parts = parts;
    this.#context = context;
    this.#credential = credential;
    const { caller, server } = context;
    this.view = { server, caller, connectionKey: credential?.connectionKey };
  }

  /** @throws SwitchboardError as `UpstreamClient.request` and `Credentials.renewAfterRefusal` do */
  async send(
    method: string,
    params?: Params,
    onNotification?: UpstreamCall['onNotification'],
  ): Promise<UpstreamReply> {
    const { reporter } = this.#parts;
    for (;;) {
      const used = this.#credential;
      try {
        const reply = await this.#request(method, params, onNotification);
        if (!used) reporter.answeredOpenly(this.view.server, method, reply);
        return reply;
      } catch (error) {
        const refusal = refusalOf(error);
        if (!refusal) throw error;
        // Another request of the operation may have renewed it in the meantime.
        if (this.#credential !== used) continue;
        const refused = { credential: used, refusal, count: ++this.#refusals };
        const newer = await credentialAfterRefusal(this.#parts.credentials, this.#context, refused);
        if (!newer) throw error;
        this.#credential = newer;
      }
    }
  }

  #request(
    method: string,
    params: Params | undefined,
    onNotification: UpstreamCall['onNotification'],
  ): Promise<UpstreamReply> {
    const { caller, server, deadline } = this.#context;
    const call = { caller, server, credential: this.#credential, method, params, onNotification };
    return this.#parts.upstream.request(call, deadline);
  }
}
