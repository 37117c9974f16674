import { SwitchboardError } from '../../errors.ts';
import { type Params, type RpcAnswer } from './envelope.ts';
import { isObject } from './json.ts';
import { brokeProtocol, sanitise, sentTooMuch } from './failures.ts';
import type { ProxyLimits } from './limits.ts';
import type { UpstreamReply } from './upstreams.ts';

/** A tool as its server lists it, with all its fields. */
export interface ListedTool {
  readonly name: string;
  /** '' when the server gives none. */
  readonly description: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
  readonly [field: string]: unknown;
}

/** A tool's result as its server sent it, with all its fields. */
export interface ToolResult {
  readonly content: readonly unknown[];
  readonly isError: boolean;
  readonly [field: string]: unknown;
}

const MAX_DETAIL_CHARS = 1_000;

/** The upstream's result. @throws SwitchboardError `upstream_error` with the upstream's own error for a JSON-RPC error. */
export function resultOf(answer: RpcAnswer): unknown {
  if ('result' in answer) return answer.result;
  const { error } = answer;
  const detail = sanitise(error.message, MAX_DETAIL_CHARS) || `The MCP server reported error ${error.code}.`;
  throw new SwitchboardError('upstream_error', detail, { upstreamError: error });
}

/** @throws SwitchboardError `upstream_protocol` for what is not a CallToolResult. */
export function toToolResult(result: unknown): ToolResult {
  if (!isObject(result)) throw brokeProtocol('answered tools/call with a result that is not an object');
  const { content } = result;
  if (Array.isArray(content)) return { ...result, content, isError: result['isError'] === true };
  if (result['resultType'] === 'input_required') {
    throw brokeProtocol(
      'asks for input in the middle of the call; the generic JSON-RPC call can answer that',
    );
  }
  throw brokeProtocol('answered tools/call without a content array');
}

/**
 * All pages of tools/list. A server whose pages never end is stopped: by the number of pages, their size together, or a
 * cursor that comes twice.
 */
export async function listAllTools(
  ask: (params: Params | undefined) => Promise<UpstreamReply>,
  limits: ProxyLimits,
): Promise<ListedTool[]> {
  const tools: ListedTool[] = [];
  const cursors = new Set<string>();
  let bytes = 0;
  let cursor: string | undefined;
  for (let page = 0; page < limits.maxToolPages; page++) {
    const reply = await ask(cursor === undefined ? undefined : { cursor });
    bytes += reply.bytes;
    if (bytes > limits.maxResponseBytes)
      throw sentTooMuch(`lists more than ${limits.maxResponseBytes} bytes of tools`);
    const result = resultOf(reply.answer);
    if (!isObject(result) || !Array.isArray(result['tools']))
      throw brokeProtocol('answered tools/list without a tools array');
    tools.push(...result['tools'].map(toListedTool));
    const next = result['nextCursor'];
    if (typeof next !== 'string') return tools;
    if (cursors.has(next)) throw brokeProtocol('repeats a cursor in tools/list');
    cursors.add(next);
    cursor = next;
  }
  throw sentTooMuch(`lists more than ${limits.maxToolPages} pages of tools`);
}

function toListedTool(tool: unknown): ListedTool {
  if (!isObject(tool) || typeof tool['name'] !== 'string') throw brokeProtocol('lists a tool without a name');
  const { name, description, inputSchema } = tool;
  return {
    ...tool,
    name,
    description: typeof description === 'string' ? description : '',
    inputSchema: isObject(inputSchema) ? inputSchema : { type: 'object' },
  };
}
