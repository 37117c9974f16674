import { activeSpan, traced, type Span, type TraceContext } from '../../platform/telemetry/tracing.ts';
import type { Server } from '../catalogue/entry.ts';
import { errorOf, type RpcAnswer } from './upstream/envelope.ts';
import { isObject } from '../../platform/json-limits.ts';
import { urlOf } from './upstream/http-client.ts';

/** The methods of MCP's revisions. Names of spans must be few, and callers may write anything else. */
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

/** Returns the method, or one name for all methods that a caller makes up. */
export const knownMethod = (method: string): string => (METHODS.has(method) ? method : '_OTHER');

interface Replied {
  readonly status: number;
  readonly answer?: RpcAnswer | undefined;
}

interface TracedCall {
  readonly server: Server;
  /** The method as the caller gave it; undefined for an answer or a stream, which has none. */
  readonly method: string | undefined;
  readonly httpMethod?: string;
  /** The tool, if its server is known to have it. */
  readonly tool?: string | undefined;
  /** The number of the attempt, from 1. */
  readonly attempt?: number;
}

/** Traces one call as its client sees it (OpenTelemetry, "Semantic conventions for MCP"). The span holds nothing of its content. */
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

/** Returns the trace context that a call to a server carries. */
export const traceContext = (): TraceContext | undefined => activeSpan()?.context;

interface Spoken {
  /** The revision of the protocol. */
  readonly version: string;
  readonly stream?: unknown;
}

/** Notes how a call ended that was answered. @param session absent where the revision is not known */
export function noteReply(span: Span, { status, answer }: Replied, session?: Spoken): void {
  if (session)
    span.set({
      'mcp.protocol.version': session.version,
      'switchboard.transport': session.stream === undefined ? 'streamable-http' : 'sse',
    });
  const error = errorOf(answer);
  span.set({ 'http.response.status_code': status, 'rpc.response.status_code': error && String(error.code) });
  if (error) span.failed(String(error.code));
  else if (answer && 'result' in answer && isObject(answer.result) && answer.result['isError'] === true)
    span.failed('tool_error');
  else if (status >= 400) span.failed(String(status));
}
