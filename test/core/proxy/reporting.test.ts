import { describe, expect, it } from 'vitest';
import {
  brokeProtocol,
  outOfTime,
  connectionFailure,
  httpFailure,
  sentTooMuch,
} from '../../../src/core/proxy/upstream/failures.ts';
import {
  BATCH,
  classifyFailure,
  classifyReply,
  classifyResult,
  classifyStatus,
  Reporter,
  type Operation,
} from '../../../src/core/proxy/reporting.ts';
import { SwitchboardError } from '../../../src/errors.ts';
import type { EndedCall } from '../../../src/core/identity/calls.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';

const how = { isShortened: false, isPassed: false };
const http = (status: number) => httpFailure({ status, headers: {}, nowMs: 0, excerpt: '' });
const lost = (code: string) => connectionFailure(Object.assign(new Error(code), { code }), 'unsent');
const failedTool = (text: string) => classifyResult({ content: [{ type: 'text', text }], isError: true });
const rpcError = (code: number, message: string) =>
  classifyFailure(new SwitchboardError('upstream_error', message, { upstreamError: { code, message } }), how);

describe('what a failure says of its server', () => {
  it.each<[string, SwitchboardError]>([
    ['a time-out', outOfTime(60_000)],
    ['a broken answer', brokeProtocol('answered with nonsense')],
    ['too large an answer', sentTooMuch('sent too much')],
    ['a refused connection', lost('ECONNREFUSED')],
    ['an unknown host', lost('ENOTFOUND')],
    ...[302, 404, 405, 410, 500, 502, 503].map((status): [string, SwitchboardError] => [
      `HTTP ${status}`,
      http(status),
    ]),
  ])('%s: it failed', (_name, error) => {
    expect(classifyFailure(error, how)).toBe(false);
  });

  it.each<[string, SwitchboardError]>([
    ['our own network down', lost('ENETUNREACH')],
    ['our own resolver down', lost('EAI_AGAIN')],
    ...[400, 401, 403, 407, 409, 422, 429].map((status): [string, SwitchboardError] => [
      `HTTP ${status}`,
      http(status),
    ]),
    ['a tool that asks for input', new SwitchboardError('upstream_input_required', 'x')],
  ])('%s: nothing', (_name, error) => {
    expect(classifyFailure(error, how)).toBeUndefined();
  });

  it("a time-out that the caller's own short limit may have made: nothing", () => {
    expect(classifyFailure(outOfTime(5_000), { ...how, isShortened: true })).toBeUndefined();
  });

  it('HTTP 404 on the pass-through: nothing, as it may be the end of a session', () => {
    expect(classifyFailure(http(404), { ...how, isPassed: true })).toBeUndefined();
    expect([200, 202, 404, 401, 429, 500, 503].map(classifyStatus)).toEqual([
      true,
      true,
      undefined,
      undefined,
      undefined,
      false,
      false,
    ]);
  });
});

describe('what a JSON-RPC error says of its server', () => {
  it.each([
    [-32_603, 'Internal error', false],
    [-32_000, 'Connection closed', false],
    [-32_001, 'Request timed out', false],
    [-32_000, 'Unauthorized: sign in first', undefined],
    [-32_603, 'Rate limit exceeded', undefined],
    [-32_602, 'whatever', undefined],
    [-32_601, 'Method not found', undefined],
    [-32_002, 'Resource gone', undefined],
    [-32_021, 'Missing capability', undefined],
    [7, 'custom', undefined],
  ])('%i %s: %s', (code, message, verdict) => {
    expect(rpcError(code, message)).toBe(verdict);
    expect(classifyReply({ answer: { error: { code, message } } })).toBe(verdict);
  });
});

describe('what a result says of its server', () => {
  it.each([
    'Something went wrong',
    'Internal server error',
    'upstream connect error or disconnect/reset before headers',
    'fetch failed',
    '',
  ])('a tool that failed with %j: it failed', text => {
    expect(failedTool(text)).toBe(false);
  });

  it.each([
    'Invalid arguments for tool x',
    'MCP error -32602: Tool x not found',
    'city is required',
    'limit must be at most 50',
    'Issue 17 does not exist',
    'Please sign in first',
    'Missing API key',
    'Request failed with status code 401',
    'Too Many Requests',
    'You do not have permission to see this',
  ])('a tool that failed with %j: nothing', text => {
    expect(failedTool(text)).toBeUndefined();
  });

  it('anything else: it works, but for a tool that asks back', () => {
    for (const result of [{}, null, [], { content: [] }, { contents: [] }, { isError: false }])
      expect(classifyResult(result)).toBe(true);
    expect(classifyResult({ resultType: 'input_required', inputRequests: {} })).toBeUndefined();
  });

  it('an error without readable content: it failed', () => {
    expect(classifyResult({ isError: true })).toBe(false);
    expect(classifyResult({ isError: true, content: [null, 7, { text: 9 }] })).toBe(false);
  });
});

describe('what the user of a call is told', () => {
  const caller = {
    tenantId: 'local',
    keyId: 'key',
    scopes: new Set<never>(),
    subject: { userId: 'usr_1', epoch: 1 },
    requestId: 'req',
    signal: new AbortController().signal,
  };
  const call = { serverId: 'notes', tool: 'search', kind: 'call' as const };
  const passed = { ...call, kind: 'pass' as const, isPassed: true as const, classify: classifyStatus };
  const batch = { serverId: 'notes', method: BATCH, kind: 'pass' as const, isPassed: true as const };
  const listing = { serverId: 'notes', method: 'tools/list', kind: 'list' as const };

  /** The outcomes that a reporter notes. */
  function noted(report: (reporter: Reporter) => void): string[] {
    const calls: EndedCall[] = [];
    report(
      new Reporter({
        log: createLog('silent'),
        totalTimeoutMs: 60_000,
        onUserCall: ended => void calls.push(ended),
      }),
    );
    return calls.map(({ tool, outcome }) => `${tool} ${outcome}`);
  }
  const succeeded =
    <T>(operation: Operation<T>, result: T) =>
    (reporter: Reporter) =>
      reporter.succeeded(caller, operation, result, 0);
  const failed = (operation: Operation<never>, error: SwitchboardError) => (reporter: Reporter) =>
    reporter.failed(caller, operation, error, 0);
  const result = { ...call, classify: classifyResult };
  const reply = { ...call, classify: classifyReply };
  const missing = new SwitchboardError('connection_required', 'x');

  it.each<[string, (reporter: Reporter) => void, string[]]>([
    ['a result', succeeded(result, { content: [] }), ['search worked']],
    [
      "a tool's own failure",
      succeeded(result, { isError: true, content: [{ type: 'text', text: 'not found' }] }),
      ['search failed'],
    ],
    ['a question', succeeded(result, { resultType: 'input_required' }), ['search answered']],
    [
      'a question in a reply',
      succeeded(reply, { answer: { jsonrpc: '2.0', id: 1, result: { resultType: 'input_required' } } }),
      ['search answered'],
    ],
    [
      'an error in a reply',
      succeeded(reply, { answer: { jsonrpc: '2.0', id: 1, error: { code: -32_602, message: 'x' } } }),
      ['search failed'],
    ],
    ['a passed reply', succeeded(passed, 200), ['search answered']],
    ['a passed refusal', succeeded(passed, 404), ['search failed']],
    ['a batch', succeeded(batch, 200), ['several requests answered']],
    ['a batch of notifications', succeeded(batch, 202), ['several requests answered']],
    ['a refused batch', succeeded(batch, 404), ['several requests failed']],
    ['a listing', succeeded(listing, {}), []],
    ['a time-out', failed(result, outOfTime(60_000)), ['search failed']],
    ['HTTP 401', failed(result, http(401)), ['search failed']],
    [
      'a question that nobody can be asked',
      failed(result, new SwitchboardError('upstream_input_required', 'x')),
      ['search answered'],
    ],
    ['wrong arguments', failed(result, new SwitchboardError('invalid_request', 'x')), ['search refused']],
    ['a missing connection', failed(result, missing), ['search not_connected']],
    ['a listing without a connection', failed(listing, missing), ['tools/list not_connected']],
    ['a listing that fails', failed(listing, outOfTime(60_000)), []],
    ['a caller that goes away', reporter => reporter.aborted(caller, result, 0), ['search stopped']],
  ])('%s', (_name, report, expected) => {
    expect(noted(report)).toEqual(expected);
  });

  it('is nothing without a user', () => {
    const { subject: _subject, ...nobody } = caller;
    expect(noted(reporter => reporter.succeeded(nobody, result, { content: [] }, 0))).toEqual([]);
    expect(noted(reporter => reporter.failed(nobody, result, missing, 0))).toEqual([]);
  });
});
