import { ProtocolError, ProtocolErrorCode, Server, specTypeSchemas } from '@modelcontextprotocol/server';
import { sanitise } from '../../platform/sanitize.ts';
import { inWords } from '../../platform/zod-issues.ts';

/** What is served here and has params of its own. */
const REQUESTS = {
  initialize: specTypeSchemas.InitializeRequest,
  'tools/list': specTypeSchemas.ListToolsRequest,
  'tools/call': specTypeSchemas.CallToolRequest,
} as const;
const MAX_NAMED = 3;
const MAX_CHARS = 300;

type Handler = ReturnType<Server['_wrapHandler']>;
type Request = Parameters<Handler>[0];

/** Says of wrong params in one line what is wrong. The SDK answers with its validator's dump, mostly as an internal error. */
export class FaceServer extends Server {
  protected override _wrapHandler(method: string, handler: Handler): Handler {
    const wrapped = super._wrapHandler(method, handler);
    return async (request, context) => {
      requireParams(request);
      return wrapped(request, context);
    };
  }
}

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

/** What a call needs in every revision. What is in its arguments its tool looks at: they may be large. */
const callOf = ({ name, arguments: args }: Readonly<Record<string, unknown>> = {}) => ({
  name,
  arguments: isObject(args) ? {} : args,
});

const isServed = (method: string): method is keyof typeof REQUESTS => Object.hasOwn(REQUESTS, method);

const isObject = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
