import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import {
  isJsonContentType,
  ProtocolError,
  SUPPORTED_PROTOCOL_VERSIONS,
  type CallToolResult,
  type ContentBlock,
  type Tool,
} from '@modelcontextprotocol/server';
import { isObject } from '../../platform/json/limits.ts';
import { CallerAbortError, Canceller, delayOf } from '../../platform/time.ts';
import { holdAnswer, type MemoryBudget } from '../http/body.ts';
import { isRpcId } from '../http/render-error.ts';
import { endInBatch, localsOf } from '../http/request.ts';
import { resultAsSent } from './sdk-server.ts';
import { callTool, type FaceOptions } from './server.ts';
import type { CallContext, Input } from './tools.ts';

/** A call of one of our own tools that is answered with one message and needs none of the SDK's features. */
interface DirectCall {
  readonly id: string | number;
  readonly tool: Tool;
  readonly arguments: Input;
}

const MEMBERS: ReadonlySet<string> = new Set(['jsonrpc', 'id', 'method', 'params']);
const PARAMS: ReadonlySet<string> = new Set(['name', 'arguments', '_meta']);
const VERSIONS: ReadonlySet<string> = new Set(SUPPORTED_PROTOCOL_VERSIONS);
/** The prefix of `_meta` keys with a meaning for the protocol. */
const RESERVED = 'io.modelcontextprotocol/';

/**
 * Returns the call in a message, or undefined if only the SDK should answer it: everything but a well-formed call of a listed tool
 * in a revision 2025-xx, without progress. The SDK answers such a call with an event stream of one message.
 * @param message has a valid id, or none
 */
export function directCallOf(
  message: object,
  headers: IncomingHttpHeaders,
  tools: readonly Tool[],
): DirectCall | undefined {
  if (!areOrdinary(headers) || !hasOnly(message, MEMBERS)) return undefined;
  const { jsonrpc, id, method, params } = message as Input;
  if (jsonrpc !== '2.0' || method !== 'tools/call' || !isRpcId(id)) return undefined;
  if (!isObject(params) || !areOrdinaryParams(params)) return undefined;
  const tool = tools.find(one => one.name === params.name);
  return tool && { id, tool, arguments: params.arguments ?? {} };
}

function areOrdinary({ 'mcp-protocol-version': version, 'content-type': type = '' }: IncomingHttpHeaders) {
  return (version === undefined || VERSIONS.has(String(version))) && isJsonContentType(type);
}

function hasOnly(value: object, names: ReadonlySet<string>): boolean {
  for (const name in value) if (!names.has(name)) return false;
  return !Object.hasOwn(value, '__proto__');
}

function areOrdinaryParams(params: Input): params is { readonly name: unknown; readonly arguments?: Input } {
  const { arguments: args = {}, _meta: meta = {} } = params;
  if (!hasOnly(params, PARAMS) || !isObject(args) || !isObject(meta)) return false;
  for (const key in meta) if (key === 'progressToken' || key.startsWith(RESERVED)) return false;
  // The SDK drops a member of this name.
  return !Object.hasOwn(args, '__proto__');
}

/** The context of a call without progress or input from the client. */
const contextOf = (id: string | number): CallContext => ({
  mcpReq: { id, requestState: () => undefined, notify: () => Promise.resolve() },
});

/**
 * Answers a call with the status, headers and bytes that the SDK would send, apart from Content-Length. Sends nothing if the client
 * has cancelled the call with a notification.
 * @throws SwitchboardError `unavailable` if too much data of earlier responses is unread
 */
export async function answerDirectly(
  options: FaceOptions,
  call: DirectCall,
  { response, budget }: { readonly response: ServerResponse; readonly budget: MemoryBudget },
): Promise<void> {
  const { calls, signal, principal } = options;
  const { id } = call;
  const stream = new OneMessageStream(response);
  const canceller = new Canceller();
  const disconnect = () => canceller.abort(signal.reason);
  if (signal.aborted) disconnect();
  else signal.addEventListener('abort', disconnect);
  const cancel = () => {
    canceller.abort(new CallerAbortError(undefined));
    stream.end();
  };
  const cancellable = { ...options, signal: canceller };
  const work = () => callTool(cancellable, call.tool, call.arguments, contextOf(id));
  let message: object;
  try {
    const result = await calls.run(options, id, cancel, work);
    message = { result: plainResult(result) ?? (await resultAsSent(result)), jsonrpc: '2.0', id };
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    const { code, message: words, data } = error;
    message = { jsonrpc: '2.0', id, error: { code, message: words, data } };
  } finally {
    stream.keepAliveNoMore();
  }
  if (canceller.aborted) return;
  const text = `event: message\ndata: ${JSON.stringify(message)}\n\n`;
  holdAnswer(budget, response, principal.keyId, text);
  stream.end(text);
}

/** In revisions 2025-xx no tool of ours asks for input. */
type Answer = Awaited<ReturnType<typeof callTool>>;

const CHECKED_META = ['progressToken', `${RESERVED}related-task`, '__proto__'];

/** Returns a result with nothing that the SDK would check or convert, its members in the SDK's order. */
function plainResult({ _meta, content, structuredContent, isError }: Answer): CallToolResult | undefined {
  if (!Array.isArray(content) || (_meta && CHECKED_META.some(key => Object.hasOwn(_meta, key))))
    return undefined;
  const isPlain =
    structuredContent === undefined ||
    (isObject(structuredContent) && !Object.hasOwn(structuredContent, '__proto__'));
  if (!isPlain || !(content as ContentBlock[]).every(isPlainText)) return undefined;
  return { _meta, content, structuredContent, isError } as CallToolResult;
}

function isPlainText(block: ContentBlock): boolean {
  if (block.type !== 'text' || typeof block.text !== 'string') return false;
  const [first, second, ...others] = Object.keys(block);
  return first === 'type' && second === 'text' && others.length === 0;
}

/** The headers of the SDK's event streams, without the one that concerns the connection. */
const HEADERS = [
  'cache-control',
  'no-cache, no-transform',
  'content-type',
  'text/event-stream',
  'x-accel-buffering',
  'no',
];
/** The headers of a slow call are sent before its result, in milliseconds, so that clients see that it has started. */
const HEAD_AFTER_MS = 1_000;
/** How often a silent stream is kept alive, in milliseconds: as often as the SDK's. */
const KEEP_ALIVE_MS = 15_000;

/** An event stream with at most one message, which is sent with the headers in one piece unless the message is late. */
class OneMessageStream {
  readonly #response: ServerResponse;
  readonly #headers: string[];
  readonly #delay = delayOf(HEAD_AFTER_MS);
  readonly #headLate = () => this.#start();
  #keepAlive: NodeJS.Timeout | undefined;
  #hasEnded = false;

  constructor(response: ServerResponse) {
    this.#response = response;
    // Without those of the call's limits, which the SDK's streams do not have either.
    this.#headers = [...localsOf(response).headers, ...HEADERS];
    this.#delay.add(this.#headLate);
  }

  keepAliveNoMore(): void {
    this.#delay.delete(this.#headLate);
    clearInterval(this.#keepAlive);
  }

  /** Sends the message, or none, and ends the stream. */
  end(text = ''): void {
    this.keepAliveNoMore();
    const response = this.#response;
    if (response.destroyed || this.#hasEnded) return;
    this.#hasEnded = true;
    const bytes = Buffer.byteLength(text);
    if (!response.headersSent) response.writeHead(200, [...this.#headers, 'content-length', String(bytes)]);
    endInBatch(response, text, bytes);
  }

  #start(): void {
    if (this.#response.destroyed) return;
    this.#response.writeHead(200, this.#headers);
    this.#response.flushHeaders();
    this.#keepAlive = setInterval(() => this.#response.write(': keepalive\n\n'), KEEP_ALIVE_MS);
  }
}
