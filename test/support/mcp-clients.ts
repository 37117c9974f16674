import {
  Client as ClientV2,
  StreamableHTTPClientTransport as TransportV2,
} from '@modelcontextprotocol/client';
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { RunningSwitchboard } from './switchboard.ts';

type Target = Pick<RunningSwitchboard, 'url' | 'key'>;

export interface Progress {
  readonly progress: number;
  readonly total?: number | undefined;
  readonly message?: string | undefined;
}

export interface CallOptions {
  readonly onprogress?: (progress: Progress) => void;
  readonly signal?: AbortSignal;
}

export interface Elicitation {
  readonly mode?: string | undefined;
  readonly url?: string;
  readonly message: string;
}

interface Tool {
  readonly name: string;
  readonly description?: string | undefined;
  readonly inputSchema: unknown;
  readonly outputSchema?: unknown;
  readonly annotations?: object | undefined;
}

interface Result {
  readonly content: { type: string; text: string }[];
  readonly structuredContent?: any;
  readonly isError?: boolean;
  readonly _meta?: Readonly<Record<string, any>>;
}

export interface McpClient extends AsyncDisposable {
  tools(): Promise<Tool[]>;
  call(name: string, args: Record<string, unknown>, options?: CallOptions): Promise<Result>;
}

interface ConnectOptions {
  readonly headers?: Record<string, string>;
  readonly capabilities?: object;
}

interface ConnectV2Options extends ConnectOptions {
  /** How its user answers an elicitation. */
  readonly answer?: (asked: Elicitation) => Promise<'accept' | 'decline' | 'cancel'>;
}

const endpoint = ({ url }: Target) => new URL(`${url}/mcp`);
const requestOptions = ({ key }: Target, headers: Record<string, string>) => ({
  requestInit: { headers: { 'X-API-Key': key, ...headers } },
});

/** A client of SDK v1 at `/mcp`. */
export async function connectV1(
  sb: Target,
  { headers = {}, capabilities = {} }: ConnectOptions = {},
): Promise<McpClient> {
  const client = new ClientV1({ name: 'test', version: '1' }, { capabilities });
  await client.connect(new TransportV1(endpoint(sb), requestOptions(sb, headers)));
  return {
    tools: async () => (await client.listTools()).tools,
    call: async (name, args, options) =>
      (await client.callTool({ name, arguments: args }, undefined, options)) as unknown as Result,
    [Symbol.asyncDispose]: () => client.close(),
  };
}

/** A client of SDK v2 at `/mcp`. */
export async function connectV2(
  sb: Target,
  mode: 'legacy' | 'auto' | { pin: string },
  { headers = {}, capabilities = {}, answer }: ConnectV2Options = {},
): Promise<McpClient> {
  const client = new ClientV2({ name: 'test', version: '1' }, { capabilities, versionNegotiation: { mode } });
  if (answer)
    client.setRequestHandler('elicitation/create', async ({ params }) => ({ action: await answer(params) }));
  await client.connect(new TransportV2(endpoint(sb), requestOptions(sb, headers)));
  return {
    tools: async () => (await client.listTools()).tools,
    call: async (name, args, options) =>
      (await client.callTool({ name, arguments: args }, options)) as unknown as Result,
    [Symbol.asyncDispose]: () => client.close(),
  };
}

/** For `describe.each`: those of 2025-xx. */
export const LEGACY_CLIENTS = [
  ['SDK v1', (sb: Target) => connectV1(sb)],
  ['SDK v2, legacy', (sb: Target) => connectV2(sb, 'legacy')],
] as const;

/** For `describe.each`: every way a client comes to speak a revision. */
export const CLIENTS = [
  ...LEGACY_CLIENTS,
  ['SDK v2, auto', (sb: Target) => connectV2(sb, 'auto')],
  ['SDK v2, 2026-07-28', (sb: Target) => connectV2(sb, { pin: '2026-07-28' })],
] as const;
