import { ProtocolError, ProtocolErrorCode, Server, specTypeSchemas } from '@modelcontextprotocol/server';
import { sanitise } from '../../core/text.ts';

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
  const { issues } = result;
  const named = issues.slice(0, MAX_NAMED).map(describe);
  if (issues.length > MAX_NAMED) named.push(`and ${issues.length - MAX_NAMED} more`);
  const text = `Invalid params of ${method}: ${named.join('; ')}`;
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

interface Issue {
  readonly message: string;
  readonly path?: readonly unknown[] | undefined;
}

function describe({ message, path = [] }: Issue): string {
  const field = path.length > 1 ? path.slice(1).join('.') : 'params';
  return `${field}: ${message.replace('Invalid input: ', '')}`;
}
