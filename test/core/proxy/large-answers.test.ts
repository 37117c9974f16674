import { describe, expect, it } from 'vitest';
import { JsonParts } from '../../../src/platform/json/limits.ts';
import { startHostile, type HostileCall, type HostileOptions } from '../../support/upstreams/hostile.ts';
import { caller, failure, startProxy, type Harness } from './harness.ts';

const LONG = 'ä"\\\n'.repeat(20_000);
const CONTENT = JSON.stringify([{ type: 'text', text: LONG }]);
const RESULT = `{"content": ${CONTENT}}`;
const MODERN = `{"resultType":"complete","content":${CONTENT}}`;

type Message = (id: string) => string | Buffer;
const message =
  (result: string) =>
  (id: string): string =>
    `{"jsonrpc":"2.0","id":${id},"result":${result}}`;

const nested = (levels: number) => `{"a":${'['.repeat(levels)}${']'.repeat(levels)},"content":${CONTENT}}`;

/** Sends bytes in pieces of these sizes, and the rest. */
function sendPieces({ response }: HostileCall, type: string, bytes: Buffer, sizes: number[]): void {
  response.writeHead(200, { 'content-type': type });
  let at = 0;
  for (const size of sizes) response.write(bytes.subarray(at, (at += size)));
  response.end(bytes.subarray(at));
}

/** A proxy in front of a server that answers each call with this text. Without sizes, JSON has a length. */
async function start(
  body: Message,
  options: HostileOptions = {},
  sizes?: number[],
  type = 'application/json',
) {
  const answer = (call: HostileCall) => {
    const bytes = Buffer.from(body(JSON.stringify(call.message.id)));
    if (sizes) return sendPieces(call, type, bytes, sizes);
    call.response.writeHead(200, { 'content-type': type, 'content-length': bytes.length }).end(bytes);
  };
  const upstream = await startHostile({ ...options, modes: { m: answer } });
  const harness = startProxy(upstream.url('m'));
  return {
    ...harness,
    async [Symbol.asyncDispose]() {
      await harness[Symbol.asyncDispose]();
      await upstream[Symbol.asyncDispose]();
    },
  };
}
const startEvents = (event: Message, sizes: number[] = []) => start(event, {}, sizes, 'text/event-stream');
const read = ({ proxy }: Pick<Harness, 'proxy'>) => proxy.call(caller(), { serverId: 's', method: 'x/y' });
const callTool = ({ proxy }: Pick<Harness, 'proxy'>) =>
  proxy.callTool(caller(), { serverId: 's', name: 'a' });
const textOf = (json: unknown) =>
  json instanceof JsonParts ? Buffer.concat(json.parts).toString() : 'it was parsed';

describe('a large result', () => {
  it.each<[string, Message, HostileOptions?, number[]?]>([
    ['as usual', message(RESULT)],
    ['without a length, in pieces', message(RESULT), {}, [1, 40, 40_000, 2, 7]],
    ['of a modern server', message(MODERN), { era: 'modern' }],
    ['with the id at the end', id => `{"result":${RESULT},"jsonrpc":"2.0","id":${id}}`],
    ['with the id as a text', id => `{"id":"${id}","result":${RESULT}}`],
    ['after a byte order mark', id => `\u{feff}${message(RESULT)(id)}`],
    ['with escaped names', id => `{"i\\u0064":${id},"\\u0072esult":${RESULT}}`],
    ['with spaces', id => ` \r\n{ "id" : ${id} , "result" : ${RESULT} }\n`],
    ['between others of that depth', id => `{"a":{"result":1},"id":${id},"result":${RESULT},"z":[{"id":7}]}`],
    ['with a text that looks like members', id => `{"a":"\\"error\\":1","id":${id},"result":${RESULT}}`],
  ])('%s: its bytes are passed on', async (_name, body, options, sizes) => {
    await using harness = await start(body, options, sizes);
    const result = options?.era ? MODERN : RESULT;
    const answer = await read(harness);
    expect('large' in answer && textOf(answer.large?.json)).toBe(result);
    expect('result' in answer && answer.result).toEqual(JSON.parse(result));
    expect(textOf(await callTool(harness))).toBe(`${result.slice(0, -1)},"isError":false}`);
    expect(harness.outcomes.map(({ ok }) => ok)).toEqual([true, true]);
  });

  it('that says that it is no error is unchanged', async () => {
    const result = `{"isError" : false, "content":${CONTENT}}`;
    await using harness = await start(message(result));
    expect(textOf(await callTool(harness))).toBe(result);
  });

  it('of 8 MB is passed on', async () => {
    const result = JSON.stringify({ content: [{ type: 'text', text: 'x'.repeat(8e6) }] });
    await using harness = await start(message(result));
    expect(textOf(await callTool(harness)) === `${result.slice(0, -1)},"isError":false}`).toBe(true);
  });

  it('is parsed for a caller that may be asked for input', async () => {
    await using harness = await start(message(RESULT));
    const call = { serverId: 's', name: 'a', capabilities: {} };
    expect(await harness.proxy.callToolInteractively(caller(), call)).toEqual({
      content: [{ type: 'text', text: LONG }],
      isError: false,
    });
  });

  it('without a content array is no result of a tool', async () => {
    const rows = JSON.stringify({ content: { text: LONG } });
    await using harness = await start(message(rows));
    expect(await read(harness)).toMatchObject({ result: JSON.parse(rows) });
    expect(await failure(callTool(harness))).toMatchObject({
      code: 'upstream_protocol',
      detail: expect.stringMatching(/without a content array/),
    });
  });

  it('is a list of tools as well', async () => {
    const tools = [{ name: 'one', description: LONG, inputSchema: { type: 'object' } }];
    await using harness = await start(message(JSON.stringify({ tools })));
    expect((await harness.proxy.listTools(caller(), { serverId: 's' })).tools).toEqual(tools);
  });
});

describe('a large result in an event', () => {
  const json = message(RESULT);
  it.each<[string, Message, number[]?]>([
    ['as usual', id => `event: message\nid: 1\ndata: ${json(id)}\n\n`],
    ['in the first line', id => `data: ${json(id)}\n\n`],
    ['after a byte order mark', id => `\u{feff}data:${json(id)}\r\n\r\n`],
    ['in pieces', id => `data: ${json(id)}\r\rdata: {}\n\n`, [1, 2, 5, 40_000, 1, 40_000]],
    ['with its type at the end', id => `data: ${json(id)}\nevent: message\n\n`, [90_000]],
    ['after others', id => `: hello\n\ndata: {"method":"a"}\n\ndata: ${json(id)}\n\n`],
    ['after a large notification', id => `data: {"method":"a","params":${CONTENT}}\n\ndata: ${json(id)}\n\n`],
  ])('%s: its bytes are passed on', async (_name, event, sizes) => {
    await using harness = await startEvents(event, sizes);
    const answer = await read(harness);
    expect('large' in answer && textOf(answer.large?.json)).toBe(RESULT);
    expect(textOf(await callTool(harness))).toBe(`${RESULT.slice(0, -1)},"isError":false}`);
  });

  it.each<[string, Message]>([
    ['in several lines', id => `data: ${json(id).slice(0, -1)}\ndata: }\n\n`],
    ['in several lines, the last of which is long', id => `data: {\ndata:${json(id).slice(1)}\n\n`],
    ['in a batch', id => `data: [${json(id)}]\n\n`],
  ])('%s is parsed', async (_name, event) => {
    await using harness = await startEvents(event);
    expect(await read(harness)).toEqual({ result: JSON.parse(RESULT) });
  });

  it.each<[string, Message, RegExp]>([
    ['that ends in the middle', id => `data: ${json(id).slice(0, 90_000)}`, /in the middle of an event/],
    ['that is invalid', id => `data: ${json(id).slice(0, -1)}\n\n`, /invalid JSON/],
    ['with a byte order mark', id => `data: \u{feff}${json(id)}\n\n`, /invalid JSON/],
    [
      'that is not UTF-8',
      id => Buffer.concat([Buffer.from(`data: ${json(id)}`), Buffer.from([0xff]), Buffer.from('\n\n')]),
      /not valid UTF-8/,
    ],
    ['nested too deeply', id => `data: ${message(nested(199))(id)}\n\n`, /nested too deeply/],
    ['to another request', () => `data: ${json('"other"')}\n\n`, /without a response/],
  ])('%s breaks the protocol', async (_name, event, text) => {
    await using harness = await startEvents(event);
    expect(await failure(callTool(harness))).toMatchObject({
      code: 'upstream_protocol',
      detail: expect.stringMatching(text),
    });
  });
});

describe('a large response that is not an ordinary result', () => {
  it.each<[string, Message, unknown]>([
    [
      'with isError twice',
      message(`{"content":${CONTENT},"isError":false,"isError":true}`),
      { isError: true },
    ],
    ['with isError in another type', message(`{"content":${CONTENT},"isError":"no"}`), { isError: 'no' }],
    ['with content twice', message(`{"content":1,"content":${CONTENT}}`), JSON.parse(RESULT)],
    ['that asks for input', message(`{"resultType":"input_required","a":${CONTENT}}`), {}],
    ['with a type that is no text', message(`{"resultType":1,"content":${CONTENT}}`), { resultType: 1 }],
    ['with two results', id => `{"id":${id},"result":{},"result":${RESULT}}`, JSON.parse(RESULT)],
    ['with two ids', id => `{"id":"x","result":${RESULT},"id":${id}}`, JSON.parse(RESULT)],
    ['with an error of null', id => `{"id":${id},"error":null,"result":${RESULT}}`, JSON.parse(RESULT)],
    ['with a method of null', id => `{"id":${id},"method":null,"result":${RESULT}}`, JSON.parse(RESULT)],
    ['in a batch', id => `[{"id":9,"result":1},{"id":${id},"result":${RESULT}}]`, JSON.parse(RESULT)],
    ['that is a list', message(CONTENT), JSON.parse(CONTENT)],
    ['that is a text', message(JSON.stringify(LONG)), LONG],
  ])('%s is parsed', async (_name, body, expected) => {
    await using harness = await start(body);
    const answer = await read(harness);
    expect(answer).not.toHaveProperty('large');
    if (typeof expected !== 'object') expect(answer).toEqual({ result: expected });
    else expect(answer).toMatchObject({ result: expected });
  });

  it('the failure of a tool is reported and explained like a small one', async () => {
    const result = JSON.stringify({
      content: [{ type: 'text', text: `Unknown tool. ${LONG}` }],
      isError: true,
    });
    await using harness = await start(message(result));
    const { content, isError } = await harness.tool('stranger');
    expect(isError).toBe(true);
    expect(content).toHaveLength(2);
    expect(harness.outcomes).toEqual([]);
  });

  it('an error is thrown with its object', async () => {
    const error = { code: -32_603, message: 'no', data: LONG };
    await using harness = await start(id => `{"id":${id},"error":${JSON.stringify(error)}}`);
    expect(await failure(callTool(harness))).toMatchObject({ code: 'upstream_error', upstreamError: error });
  });

  it.each<[string, Message, RegExp, number[]?]>([
    ['cut off', id => message(RESULT)(id).slice(0, -2), /invalid JSON/],
    ['cut in the middle', id => message(RESULT)(id).slice(0, 60_000), /invalid JSON/, [30_000]],
    ['with a second value', id => `${message(RESULT)(id)}{}`, /invalid JSON/],
    ['with a control character', id => message(RESULT)(id).replace('\\n', '\n'), /invalid JSON/],
    [
      'that is not UTF-8 in the middle',
      id => Buffer.concat([Buffer.from(message(RESULT)(id)).subarray(0, 70_000), Buffer.from([0xff, 0x22])]),
      /not valid UTF-8/,
    ],
    ['nested too deeply', message(nested(199)), /nested too deeply/],
    ['nested very deeply', message(nested(200_000)), /nested too deeply/],
    ['to another request', () => message(RESULT)('"other"'), /another request/],
    ['without an id', () => `{"result":${RESULT}}`, /another request/],
    ['with an endless id', () => `{"id":"${LONG.replaceAll(/\W/g, 'x')}","result":{}}`, /another request/],
  ])('%s breaks the protocol', async (_name, body, text, sizes) => {
    await using harness = await start(body, {}, sizes);
    expect(await failure(callTool(harness))).toMatchObject({
      code: 'upstream_protocol',
      detail: expect.stringMatching(text),
    });
    expect(harness.outcomes.map(({ ok }) => ok)).toEqual([false]);
  });

  it('may be nested as deeply as a small one', async () => {
    await using harness = await start(message(nested(198)));
    expect(textOf(await callTool(harness))).toContain('[[[[');
  });
});
