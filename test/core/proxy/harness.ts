import { expect, vi } from 'vitest';
import { SwitchboardError } from '../../../src/errors.ts';
import type { Caller } from '../../../src/core/access/caller.ts';
import type { Server } from '../../../src/core/catalogue/entry.ts';
import type { Credential } from '../../../src/core/identity/connections/holdings.ts';
import { Sealing } from '../../../src/platform/sealing.ts';
import { Guard, type GuardOptions } from '../../../src/platform/outbound/guard.ts';
import {
  createProxy,
  type McpProxy,
  type ProxyOptions,
  type ToolResult,
} from '../../../src/core/proxy/proxy.ts';
import { JsonParts } from '../../../src/platform/json/limits.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';

/** The catalogue has these, so that their calls go out at once: a tool that nobody knows is looked up first. */
const KNOWN_TOOLS = ['tool', 'echo', 'wait', 'fail', 'ask', 'a', 'b', 'c'];

const server = (id: string, remoteUrl: string, more: Partial<Server> = {}): Server => ({
  id,
  name: id,
  description: id,
  remoteUrl,
  auth: { kind: 'unknown' },
  categories: [],
  tools: KNOWN_TOOLS.map(name => ({ name, description: '', input_schema: {} })),
  origin: 'operator',
  active: true,
  ...more,
});

export const caller = (more: Partial<Caller> = {}): Caller => ({
  tenantId: 'local',
  keyId: 'key',
  scopes: new Set(['proxy']),
  requestId: 'req_1',
  signal: new AbortController().signal,
  ...more,
});

/** A caller for an end user. */
export const callerFor = (userId: string, more: Partial<Caller> = {}): Caller =>
  caller({ subject: { userId, epoch: 0 }, ...more });

/** What an account's token is in these tests: it says which connection and version it is of. */
export const credentialOf = (connectionKey: string, version = 1): Credential =>
  bearer(`${connectionKey}-${version}`, { connectionKey, version });

/** A credential that is a bearer token. */
export const bearer = (token: string, { connectionKey = 'con', version = 1 } = {}): Credential => ({
  connectionKey,
  version,
  headers: { authorization: `Bearer ${token}` },
  secrets: [token],
});

/** No server takes a user's token. */
const NO_CREDENTIALS: ProxyOptions['credentials'] = {
  forCall: () => Promise.resolve(undefined),
  renewAfterRefusal: () => Promise.resolve(undefined),
};

/** A clock that stands still until it is moved. */
class TestClock {
  #nowMs = Date.UTC(2026, 10, 21);
  #wrongByMs = 0;
  now = (): number => this.#nowMs + this.#wrongByMs;
  monotonic = (): number => this.#nowMs;
  advance(ms: number): void {
    this.#nowMs += ms;
  }
  /** As an operator or a time server does: no time passes, but the date is another. */
  setWrongBy(ms: number): void {
    this.#wrongByMs = ms;
  }
}

export interface Harness extends AsyncDisposable {
  readonly proxy: McpProxy;
  readonly clock: TestClock;
  readonly outcomes: { serverId: string; tenantId: string; ok: boolean }[];
  /** Every log line, parsed. */
  readonly logged: Record<string, unknown>[];
  /** Puts a server into the catalogue, or another of the same id in its place. */
  catalogue(id: string, url: string, more?: Partial<Server>): void;
  /** Resolves once so many listings made in the background, after calls, have failed: few of these upstreams list tools. */
  refreshed(count: number): Promise<void>;
  /** Calls a tool of the server `s`, and parses its result if it is large. */
  tool(name?: string, args?: Record<string, unknown>): Promise<ToolResult>;
}

/** A proxy on a catalogue of one server, `s`, at the given URL. */
export function startProxy(
  url: string,
  {
    allowPrivateNetwork = true,
    connectTimeoutMs = 5_000,
    resolve,
    ...options
  }: Partial<ProxyOptions & GuardOptions> = {},
): Harness {
  const servers = new Map([['s', server('s', url)]]);
  const outcomes: Harness['outcomes'] = [];
  const logged: Harness['logged'] = [];
  const clock = new TestClock();
  const log = createLog('trace', { write: (line: string) => void logged.push(JSON.parse(line)) });
  const proxy = createProxy({
    catalogue: {
      readCalled: id => {
        const found = servers.get(id);
        if (found) return Promise.resolve(found);
        throw new SwitchboardError('server_not_found', `No server has the id "${id}".`);
      },
    },
    credentials: NO_CREDENTIALS,
    sealing: new Sealing([{ id: 'k1', key: new Uint8Array(32) }], clock),
    guard: new Guard({ allowPrivateNetwork, connectTimeoutMs, log, ...(resolve ? { resolve } : {}) }),
    log,
    clock,
    onOutcome: outcome => void outcomes.push(outcome),
    ...options,
  });
  return {
    proxy,
    clock,
    outcomes,
    logged,
    refreshed: count =>
      vi.waitFor(
        () => {
          const done = logged.filter(({ msg }) => msg === 'failed to refresh tool definitions');
          if (done.length < count) throw new Error(`${done.length} of ${count}`);
        },
        { timeout: 20_000, interval: 5 },
      ),
    catalogue: (id, newUrl, more) => void servers.set(id, server(id, newUrl, more)),
    tool: (name = 'tool', args = {}) =>
      proxy.callTool(caller(), { serverId: 's', name, arguments: args }).then(parsed),
    [Symbol.asyncDispose]: () => proxy.close(),
  };
}

/** A proxy whose catalogue says that the server speaks HTTP+SSE. */
export function startSse(url: string, options?: Parameters<typeof startProxy>[1]): Harness {
  const harness = startProxy(url, options);
  harness.catalogue('s', url, { transport: 'sse' });
  return harness;
}

/** Sixty calls of three users at a time get an answer of their own each, in one session a user. */
export async function expectOwnEchoes({ proxy }: Harness): Promise<void> {
  const texts = Array.from({ length: 60 }, (_, i) => `call ${i}`);
  const results = await Promise.all(
    texts.map((message, i) =>
      proxy
        .callTool(callerFor(`user-${i % 3}`), { serverId: 's', name: 'echo', arguments: { message } })
        .then(parsed),
    ),
  );
  expect(results.map(({ content }) => content)).toEqual(
    texts.map(text => [{ type: 'text', text: `Echo: ${text}` }]),
  );
  expect(proxy.sessionCount).toBe(3);
}

/** The result of a tool, parsed if it is large. */
const parsed = (result: ToolResult | JsonParts): ToolResult =>
  result instanceof JsonParts ? (JSON.parse(Buffer.concat(result.parts).toString()) as ToolResult) : result;

/** What the promise rejects with, as a SwitchboardError; anything else fails the test. */
export async function failure(promise: Promise<unknown>): Promise<SwitchboardError> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof SwitchboardError) return error;
    throw error;
  }
  throw new Error('expected a failure');
}
