import {
  ProtocolError,
  ProtocolErrorCode,
  Server,
  specTypeSchemas,
  type CallToolResult,
  type McpHttpHandler,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import { isObject } from '../../platform/json/limits.ts';
import { sanitise } from '../../platform/sanitize.ts';
import { inWords } from '../../platform/zod-issues.ts';

/** The requests that are handled here and have params. */
const REQUESTS = {
  initialize: specTypeSchemas.InitializeRequest,
  'tools/list': specTypeSchemas.ListToolsRequest,
  'tools/call': specTypeSchemas.CallToolRequest,
} as const;
const MAX_NAMED = 3;
const MAX_CHARS = 300;

type Handler = ReturnType<Server['_wrapHandler']>;
type Request = Parameters<Handler>[0];
type Context = Parameters<Handler>[1];
type Result = Awaited<ReturnType<Handler>>;

/**
 * Describes invalid params in one line, before the SDK responds with its validator's dump, usually as an internal error. The
 * SDK intends `_wrapHandler` for subclasses: our handlers run only after its check, and `initialize` has none of ours.
 */
export class FaceServer extends Server {
  protected override _wrapHandler(method: string, handler: Handler): Handler {
    const wrapped = super._wrapHandler(method, handler);
    return async (request, context) => {
      requireParams(request);
      return wrapped(request, context);
    };
  }

  /** Returns a tool's result as it is sent. @throws ProtocolError for an invalid result */
  async sent(result: Result): Promise<CallToolResult> {
    const project = () => Promise.resolve(this.projectCallToolResult(result as CallToolResult, undefined));
    return (await super._wrapHandler('tools/call', project)(CALL, NO_CONTEXT)) as CallToolResult;
  }
}

const CALL = { jsonrpc: '2.0', id: 0, method: 'tools/call', params: { name: '' } } as const;
/** The part of the context that is read for a finished result. */
const NO_CONTEXT = { mcpReq: { requestState: () => undefined } } as unknown as Context;

/** @throws ProtocolError -32602. */
function requireParams({ method, params }: Request): void {
  if (!isServed(method)) return;
  const checked = method === 'tools/call' ? callOf(params) : params;
  const result = REQUESTS[method]['~standard'].validate({ method, ...(checked && { params: checked }) });
  if (result instanceof Promise || !result.issues) return;
  // The first part of each path is `params` itself.
  const issues = result.issues.map(({ message, path = [] }) => ({ message, path: path.slice(1) }));
  const text = `Invalid params of ${method}: ${inWords(issues, 'params', MAX_NAMED)}`;
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, sanitise(text, MAX_CHARS));
}

/** Validates the params that a call has in every revision. Its arguments may be large and are validated by their tool. */
const callOf = ({ name, arguments: args }: Readonly<Record<string, unknown>> = {}) => ({
  name,
  arguments: isObject(args) ? {} : args,
});

const isServed = (method: string): method is keyof typeof REQUESTS => Object.hasOwn(REQUESTS, method);

/** Never connected, so its revision is 2025-xx. */
const unconnected = new FaceServer({ name: 'switchboard', version: '' }, { capabilities: { tools: {} } });

/** Returns a result as the SDK sends it to a client of revisions 2025-xx. @throws ProtocolError for an invalid result */
export const resultAsSent = (result: Result): Promise<CallToolResult> => unconnected.sent(result);

type Fetch = McpHttpHandler['fetch'];

const refusal = z.looseObject({ error: z.unknown() });
const shorter = (_key: string, value: unknown): unknown =>
  typeof value === 'string' ? sanitise(value, MAX_CHARS) : value;

/** Shortens the SDK's errors, which quote versions, methods and names without a length limit. */
export const shortErrors =
  (fetch: Fetch): Fetch =>
  async (request, options) => {
    const response = await fetch(request, options);
    if (response.status < 400 || !response.headers.get('content-type')?.startsWith('application/json'))
      return response;
    const message = refusal.safeParse(await response.clone().json());
    if (!message.success) return response;
    // The id stays unchanged, because its caller needs it.
    const error: unknown = JSON.parse(JSON.stringify(message.data.error), shorter);
    const headers = new Headers(response.headers);
    headers.delete('content-length');
    return new Response(JSON.stringify({ ...message.data, error }), { status: response.status, headers });
  };
