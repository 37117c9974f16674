import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import * as fc from 'fast-check';
import type { Schema } from './document.ts';
import { nearly } from './json-text.ts';
import { astrayRequests, brokenRequests, type Keys } from './odd-requests.ts';
import { faults } from './faults.ts';
import { keyOf } from './judge.ts';
import { altered, type FuzzAnswer, type FuzzRequest } from './send.ts';
import { fitting, type Known } from './values.ts';

/** One of the tools that `tools/list` names. */
export interface Tool {
  readonly name: string;
  readonly inputSchema: Schema;
  readonly outputSchema?: object;
}

const META = 'io.modelcontextprotocol';
const MODERN = '2026-07-28';
const revisions = fc.constantFrom(undefined, '2025-06-18', '2025-11-25', MODERN, MODERN, '1999-01-01', 'x');
const ids = fc.oneof(fc.integer(), fc.string({ maxLength: 20 }), fc.constantFrom('', 0, -1, 2 ** 53 - 1));

const PLAIN_METHODS = [
  'ping',
  'tools/list',
  'server/discover',
  'resources/list',
  'prompts/get',
  'completion/complete',
  'logging/setLevel',
  'subscriptions/listen',
  'notifications/initialized',
  'notifications/cancelled',
  'constructor',
  'x',
];

interface Message {
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
}

function messages(tools: readonly Tool[], known: Known): fc.Arbitrary<Message> {
  const calls = tools.map(({ name, inputSchema }) =>
    fitting(inputSchema, '', known).map(args => ({
      method: 'tools/call',
      params: { name, arguments: args },
    })),
  );
  const clients = { protocolVersion: MODERN, capabilities: {}, clientInfo: { name: 'fuzz', version: '1' } };
  return fc.oneof(
    { weight: 6, arbitrary: fc.oneof(...calls) },
    fc.constant({ method: 'tools/call', params: { name: 'none', arguments: {} } }),
    fc.constant({ method: 'initialize', params: clients }),
    fc.constantFrom(...PLAIN_METHODS).map(method => ({ method, params: {} })),
  );
}

const metaOf = (revision: string) => ({
  [`${META}/protocolVersion`]: revision,
  [`${META}/clientInfo`]: { name: 'fuzz', version: '1' },
  [`${META}/clientCapabilities`]: {},
});

/** JSON-RPC envelopes to `/mcp` of every kind, in both eras. */
export function mcpRequests(tools: readonly Tool[], keys: Keys, known: Known): fc.Arbitrary<FuzzRequest> {
  const envelopes = fc
    .tuple(messages(tools, known), ids, revisions)
    .map(([{ method, params }, id, revision]) => ({
      revision,
      message: {
        jsonrpc: '2.0',
        ...(method.startsWith('notifications/') ? {} : { id }),
        method,
        params: revision === MODERN ? { ...params, _meta: metaOf(revision) } : params,
      },
    }));
  const valid = envelopes.map(({ revision, message }): FuzzRequest => ({
    family: 'valid',
    method: 'POST',
    target: '/mcp',
    headers: {
      'x-api-key': keys.right,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...(revision !== undefined && { 'mcp-protocol-version': revision }),
      ...(revision === MODERN && { 'mcp-method': message.method, ...nameOf(message.params) }),
    },
    body: JSON.stringify(message),
  }));
  const spoilt = fc
    .tuple(valid, nearly(envelopes.map(({ message }) => message)))
    .map(([one, body]) => altered(one, { family: 'near', body }));
  const odd = fc
    .tuple(valid, fc.constantFrom(...ODD_MCP_HEADERS))
    .map(([one, headers]) => altered(one, { family: 'near', headers }));
  return fc.oneof(
    { weight: 3, arbitrary: valid },
    { weight: 5, arbitrary: spoilt },
    { weight: 2, arbitrary: odd },
    { weight: 3, arbitrary: brokenRequests(valid, keys) },
    // A path nearby can be that of a server, /mcp/{server_id}, whose answers are the server's own.
    { weight: 1, arbitrary: astrayRequests(valid).filter(({ target }) => target === '/mcp') },
  );
}

const nameOf = (params: Message['params']) =>
  typeof params['name'] === 'string' ? { 'mcp-name': params['name'] } : {};

const ODD_MCP_HEADERS = [
  { 'mcp-protocol-version': ['2025-11-25', MODERN] },
  { 'mcp-protocol-version': 'x'.repeat(5_000) },
  { 'mcp-session-id': 'x' },
  { 'mcp-session-id': '\u00ff' },
  { 'mcp-method': 'tools/list' },
  { 'mcp-method': '\u00ff' },
  { 'mcp-name': '=?base64?!!!?=' },
  { 'mcp-name': '__proto__' },
  { 'last-event-id': '\u00ff'.repeat(100) },
  { accept: 'application/json' },
  { accept: 'text/event-stream' },
  { accept: 'application/json;q=0, */*' },
];

const STATUSES: ReadonlySet<number> = new Set([200, 202, 400, 401, 403, 404, 405, 406, 413, 415]);
export const INTERNAL_ERROR = -32603;
export const MAX_ERROR_CHARS = 3_000;

/** Tells what is wrong with an answer of `/mcp`: nothing, mostly. */
export function mcpJudge(tools: readonly Tool[], { right, otherScope }: Keys) {
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  const outputs = new Map(
    tools.flatMap(({ name, outputSchema }) =>
      outputSchema === undefined ? [] : [[name, ajv.compile(outputSchema)] as const],
    ),
  );
  return (request: FuzzRequest, { status, headers, text }: FuzzAnswer): string[] => {
    const type = String(headers['content-type']).replace(/;.*/, '');
    if (!STATUSES.has(status)) return [`status ${status}`];
    if (request.method === 'HEAD') return [];
    if (status === 202) return text === '' ? [] : ['202 with a body'];
    if (type !== 'application/json' && type !== 'text/event-stream') return [`content type ${type}`];
    const sent = parsed(typeof request.body === 'string' ? request.body : '') as any;
    return [
      ...messagesIn(type, text).flatMap(message => ofMessage(message, sent, outputs)),
      // Without the scope of a tool, its result says so.
      ...faults([
        status === 200 && ![right, otherScope].includes(keyOf(request) ?? ''),
        'success without the key',
      ]),
    ];
  };
}

export function messagesIn(type: string, text: string): unknown[] {
  if (type === 'application/json') return [parsed(text)];
  const data = text.split('\n').filter(line => line.startsWith('data:') && line.length > 6);
  return data.map(line => parsed(line.slice(5)));
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function ofMessage(message: any, sent: any, outputs: ReadonlyMap<string, ValidateFunction>): string[] {
  if (message?.jsonrpc !== '2.0') return ['no JSON-RPC message'];
  if (typeof message.method === 'string') return [];
  const { id, result, error } = message;
  return [
    ...faults(
      [(result === undefined) === (error === undefined), 'neither or both of result and error'],
      [id !== null && id !== sent?.id, 'the id of another request'],
      [id === null && result !== undefined, 'a result for no id'],
    ),
    ...(error === undefined ? [] : ofRpcError(error)),
    ...(sent?.method === 'tools/call' && Array.isArray(result?.content) ? ofTool(result, sent, outputs) : []),
  ];
}

const ofRpcError = ({ code, message, data }: any): string[] =>
  faults(
    [!Number.isInteger(code) || code === INTERNAL_ERROR, `error code ${code}`],
    [typeof message !== 'string' || message === '', 'an error without message'],
    [
      JSON.stringify([message, data]).length > MAX_ERROR_CHARS,
      `an error of over ${MAX_ERROR_CHARS} characters`,
    ],
  );

function ofTool(result: any, sent: any, outputs: ReadonlyMap<string, ValidateFunction>): string[] {
  const isRefusal = result.isError === true;
  const check = outputs.get(sent.params?.name);
  return faults(
    [
      isRefusal && /went wrong on our side/.test(JSON.stringify(result.content)),
      'an internal error of a tool',
    ],
    [!isRefusal && check?.(result.structuredContent) === false, 'a result unlike its outputSchema'],
  );
}
