import * as fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { startFuzzed } from '../support/fuzz/fuzzed.ts';
import { operationsOf } from '../support/fuzz/document.ts';
import { Findings } from '../support/fuzz/findings.ts';
import { Judge } from '../support/fuzz/judge.ts';
import { mcpJudge, mcpRequests, type Tool } from '../support/fuzz/mcp.ts';
import { passThroughProblems, passThroughRequests } from '../support/fuzz/pass-through.ts';
import { requestsTo, validRequests } from '../support/fuzz/requests.ts';
import { sender, type FuzzRequest } from '../support/fuzz/send.ts';
import { heapAfterCollection } from '../support/fuzz/heap.ts';

/** The same requests each time; more of them, or others, on request. */
const SEED = Number(process.env['FUZZ_SEED'] ?? 20_261_121);
const RUNS = Number(process.env['FUZZ_RUNS'] ?? 60);
/** What the answers of a run may leave behind: caches, compiled schemas, the entries of imports. */
const MAX_GROWTH_BYTES = 100 * 1024 * 1024;

const fuzzed = await startFuzzed();
const wire = sender(fuzzed.url);
afterAll(async () => {
  wire[Symbol.dispose]();
  await fuzzed[Symbol.asyncDispose]();
});
const operations = operationsOf(fuzzed.document);
const heapBefore = heapAfterCollection();

describe('requests of every kind, to every operation of /openapi.json [errors.documented] [errors.no-html]', () => {
  it.each(operations)(
    '$name: only documented answers, no 500, no HTML, errors as problem details',
    async operation => {
      const keys = fuzzed.keysFor(operation);
      const judge = new Judge(fuzzed.document, keys.right);
      const findings = new Findings();
      const send = async (one: FuzzRequest) => {
        const request = fuzzed.aimed(one);
        const answer = await wire.send(request);
        findings.add(operation.name, request, answer, judge.problems(operation, request, answer));
        if (answer.status === 200) await fuzzed.restore(operation.id);
      };
      const each = fc.asyncProperty(requestsTo(operation, keys, fuzzed.known), send);
      await fc.assert(each, { seed: SEED, numRuns: RUNS });
      // Where many fields have to fit together, the first success may take longer.
      const valid = validRequests(operation, keys, fuzzed.known);
      for (const one of fc.sample(valid, { seed: SEED, numRuns: 10 * RUNS })) {
        if (findings.succeeded > 0) break;
        await send(one);
      }
      expect(findings.list().join('\n\n')).toBe('');
      expect(findings.succeeded, 'requests that succeeded').toBeGreaterThan(0);
    },
  );
});

async function toolsAt(target: string): Promise<Tool[]> {
  const headers = { 'x-api-key': fuzzed.keys.right, accept: 'application/json, text/event-stream' };
  const { text } = await fuzzed.post(target, { jsonrpc: '2.0', id: 1, method: 'tools/list' }, headers);
  return JSON.parse(/\{.*\}/.exec(text)?.[0] ?? '').result.tools;
}

describe('JSON-RPC messages of every kind to /mcp', () => {
  it('only JSON-RPC answers to the request, none of them an internal error', async () => {
    const keys = fuzzed.keys;
    const tools = await toolsAt('/mcp');
    expect(tools).toHaveLength(2);
    const problems = mcpJudge(tools, keys);
    const findings = new Findings();
    const each = fc.asyncProperty(mcpRequests(tools, keys, fuzzed.known), async request => {
      const answer = await wire.send(request);
      findings.add('/mcp', request, answer, problems(request, answer));
    });
    await fc.assert(each, { seed: SEED, numRuns: 4 * RUNS });
    expect(findings.list().join('\n\n')).toBe('');
    expect(findings.succeeded).toBeGreaterThan(0);
  });
});

describe('JSON-RPC messages of every kind to /mcp/{server_id}', () => {
  it('only answers of the server and JSON-RPC errors, no 500, no HTML', async () => {
    const { keys, known } = fuzzed;
    const tools = await toolsAt('/mcp/echo');
    expect(tools.map(({ name }) => name)).toContain('echo');
    const problems = passThroughProblems(keys);
    const findings = new Findings();
    const each = fc.asyncProperty(passThroughRequests(tools, keys, known), async request => {
      const answer = await wire.send(request);
      findings.add('/mcp/{server_id}', request, answer, problems(request, answer));
    });
    await fc.assert(each, { seed: SEED, numRuns: 4 * RUNS });
    expect(findings.list().join('\n\n')).toBe('');
    expect(findings.succeeded).toBeGreaterThan(0);
  });
});

describe('after all of them', () => {
  it('the process responds, has logged no error and uses little memory', async () => {
    expect(
      (await wire.send({ family: 'valid', method: 'GET', target: '/healthz', headers: {} })).status,
    ).toBe(200);
    expect(fuzzed.errorsLogged()).toEqual([]);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
    expect(heapAfterCollection() - heapBefore).toBeLessThan(MAX_GROWTH_BYTES);
  });
});
