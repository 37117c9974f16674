import assert from 'node:assert/strict';
import type { Client } from './client.ts';
import type { Given, Json } from './model.ts';

export type Upstream = 'everything' | 'fast' | 'v2';

interface Stage {
  readonly client: Client;
  /** The id of an entry for the upstream that lists no tools. No other scenario and no other client uses it. */
  readonly unlisted: string;
  /** The instructions of Switchboard's own server, and the descriptions of its tools and their parameters. */
  readonly described: readonly string[];
  /** Signs in as the user for whom `switchboard_user` acts, as the page at the address asks for. */
  signIn(authUrl: string): Promise<void>;
}

/** One thing that a client must manage. It fails with an AssertionError that says what the model would have needed. */
export interface Scenario {
  readonly title: string;
  readonly upstream: Upstream;
  run(stage: Stage): Promise<void>;
}

/** Names of each entry, by its id. */
export const ENTRY_NAMES: Readonly<Record<Upstream, string>> = {
  everything: 'Reference server',
  fast: 'Harbour office',
  v2: 'Sounding board',
};

/** The server that a client knows an upstream by: through Switchboard, and without it. */
export const directly = (upstream: Upstream) => `${upstream}_direct`;

/** One call of a tool of an upstream. */
interface Call {
  readonly tool: string;
  readonly input: Json;
}

const GREET: Call = { tool: 'greet', input: { name: 'Ada' } };
const GREETING = /Welcome to the harbour, Ada!/;

const callRemote = (client: Client, serverId: string, { tool, input }: Call): Promise<Given> =>
  client.call('switchboard', 'call_remote_tool', { server_id: serverId, tool_name: tool, arguments: input });

/** All that a model reads of a result. */
const saidIn = ({ texts, structured }: Given): string =>
  [...texts, ...(structured === undefined ? [] : [JSON.stringify(structured)])].join('\n');

/** The structured content, or the text that an agent makes of it. */
const dataIn = ({ structured, texts }: Given): any => structured ?? JSON.parse(texts.join(''));

function assertSucceeded(given: Given, expected: RegExp): void {
  assert.notEqual(given.isError, true, `an error: ${saidIn(given).slice(0, 300)}`);
  assert.match(saidIn(given), expected);
}

/** A result that reaches the model as the server sent it, and as it would have come without Switchboard. */
const whole = (title: string, upstream: Upstream, call: Call, check: (given: Given) => void): Scenario => ({
  title,
  upstream,
  async run({ client }) {
    const given = await callRemote(client, upstream, call);
    check(given);
    for (const [server, way] of [
      [upstream, `/mcp/${upstream}`],
      [directly(upstream), 'the server itself'],
    ] as const)
      assert.deepEqual(given, await client.call(server, call.tool, call.input), `it differs from ${way}`);
  },
});

const WEATHER = { temperature: 36, conditions: 'Light rain / drizzle', humidity: 82 };
const forecast = (days: number) => ({
  island: 'Texel',
  days: Array.from({ length: days }, (_, day) => ({ day: day + 1, wind_knots: 8 + 3 * day })),
});
const FORECAST = forecast(2);

const RESULTS = [
  whole('text', 'everything', { tool: 'echo', input: { message: 'high tide' } }, given =>
    assert.deepEqual(given.texts, ['Echo: high tide']),
  ),
  whole('text', 'v2', { tool: 'echo', input: { message: 'high tide' } }, given =>
    assert.deepEqual(given.texts, ['Echo: high tide']),
  ),
  whole('text', 'fast', { tool: 'notice', input: {} }, given =>
    assert.deepEqual(given.texts, ['The gate closes at ten.']),
  ),
  whole('text of 40,000 characters', 'fast', { tool: 'logbook', input: { lines: 800 } }, given =>
    assert.match(saidIn(given), /799: nothing/),
  ),
  whole('text as FastMCP wraps it', 'fast', GREET, given => assert.match(saidIn(given), GREETING)),
  whole(
    'text of 40,000 characters as FastMCP wraps it',
    'fast',
    { tool: 'diary', input: { lines: 800 } },
    given => assert.match(saidIn(given), /799: nothing/),
  ),
  whole('image between texts', 'everything', { tool: 'get-tiny-image', input: {} }, given => {
    assert.match(saidIn(given), /Here's the image/);
    assert.match(given.images[0] ?? '', /^iVBORw0KGgo/);
  }),
  whole('image', 'fast', { tool: 'picture', input: {} }, given =>
    assert.match(given.images[0] ?? '', /^iVBORw0KGgo/),
  ),
  whole('resource and link', 'fast', { tool: 'tides', input: {} }, given =>
    assert.match(saidIn(given), /06:12[^]*harbour:\/\/moon/),
  ),
  whole(
    'structured content',
    'everything',
    { tool: 'get-structured-content', input: { location: 'Chicago' } },
    given => assert.deepEqual(dataIn(given), WEATHER),
  ),
  whole('structured content', 'fast', { tool: 'forecast', input: { island: 'Texel', days: 2 } }, given =>
    assert.deepEqual(dataIn(given), FORECAST),
  ),
  whole('structured content beside words', 'fast', { tool: 'timetable', input: {} }, given =>
    assert.match(saidIn(given), /Two ferries|17:40/),
  ),
  whole("a tool's own error", 'fast', { tool: 'book', input: { ferry: 'Aurora' } }, given =>
    assert.match(saidIn(given), /The ferry Aurora is fully booked until Friday/),
  ),
  whole("a tool's own error", 'v2', { tool: 'fail', input: {} }, given =>
    assert.match(saidIn(given), /on purpose/),
  ),
];

const LINES = 10_000;
const WHALE = '7000: a whale was seen off the pier.';
const logbook = (lines: number, line: string) =>
  Array.from({ length: lines }, (_, number) => (number === 7_000 ? WHALE : `${number}: ${line}`)).join('\n');
const ENGLISH = logbook(LINES, 'nothing out of the ordinary at the harbour.');
const CHINESE = logbook(LINES, '港口今天没有特别的事情。');

/** The call that the end of a result says reads on in it. */
function callIn(text: string): Json | undefined {
  const call = /call_remote_tool (\{"server_id":"switchboard","tool_name":"read_result".*?\}\})/.exec(
    text,
  )?.[1];
  return call === undefined ? undefined : JSON.parse(call);
}

function callThatReadsOn(given: Given): Json {
  const call = callIn(saidIn(given));
  assert.ok(
    call,
    `no call that reads on, in ${saidIn(given).length} characters that end with: ${saidIn(given).slice(-200)}`,
  );
  return call;
}

const readResult = (client: Client, call: Json) => client.call('switchboard', 'call_remote_tool', call);

const MAX_PAGES = 50;

/** Reads on from a result to its end, as it says. Each part begins where the last has ended. */
async function assertReadToTheEnd(client: Client, first: Given, expected: string): Promise<void> {
  let given = first;
  let offset = 0;
  for (let page = 1; page <= MAX_PAGES; page++) {
    const text = given.texts.join('\n');
    const call = callIn(text);
    const end = call === undefined ? expected.length : Number(call['arguments'].offset);
    assert.ok(end > offset, `part ${page} begins at ${offset} and ends at ${end}`);
    const differs = firstDifference(text, expected.slice(offset, end));
    const place = text.slice(Math.max(0, differs - 60), differs + 60);
    assert.equal(differs, end - offset, `part ${page}, of ${end - offset} characters, is cut: …${place}…`);
    if (call === undefined) return;
    offset = end;
    given = await readResult(client, call);
  }
  assert.fail(`not at its end after ${MAX_PAGES} parts`);
}

/** How many characters of the expected text the text begins with. */
function firstDifference(text: string, expected: string): number {
  if (text.startsWith(expected)) return expected.length;
  let at = 0;
  while (text[at] === expected[at]) at++;
  return at;
}

const REFUSALS: readonly Scenario[] = [
  {
    title: 'sign-in, then the same call',
    upstream: 'everything',
    async run({ client, signIn }) {
      const echo = () =>
        client.call('switchboard_user', 'call_remote_tool', {
          server_id: 'account',
          tool_name: 'echo',
          arguments: { message: 'high tide' },
        });
      const said = saidIn(await echo());
      const authUrl = /https?:\/\/\S+\/connect\/[\w-]+/.exec(said)?.[0];
      assert.ok(authUrl, `no link to sign in: ${said}`);
      await signIn(authUrl);
      assertSucceeded(await echo(), /Echo: high tide/);
    },
  },
  {
    title: 'a server that is down',
    upstream: 'everything',
    async run({ client }) {
      const said = saidIn(await callRemote(client, 'down', { tool: 'echo', input: {} }));
      assert.match(said, /could not|cannot|unreachable|refused/i);
    },
  },
];

/** A tool of the fast server whose answer is cut, and read on until all of it has been seen. */
const readToTheEnd = (
  what: string,
  tool: string,
  input: Record<string, unknown>,
  expected: string,
): Scenario => ({
  title: `${what}, read to its end`,
  upstream: 'fast',
  async run({ client }) {
    await assertReadToTheEnd(client, await callRemote(client, 'fast', { tool, input }), expected);
  },
});

const LONG_RESULTS: readonly Scenario[] = [
  readToTheEnd('long text', 'logbook', { lines: LINES }, ENGLISH),
  readToTheEnd('long Chinese text', 'logbook', { lines: LINES, chinese: true }, CHINESE),
  {
    title: 'long text, words found in it',
    upstream: 'fast',
    async run({ client }) {
      const given = await callRemote(client, 'fast', { tool: 'logbook', input: { lines: LINES } });
      const call = callThatReadsOn(given);
      const { handle } = call['arguments'];
      const found = await readResult(client, { ...call, arguments: { handle, find: 'Whale' } });
      assertSucceeded(found, new RegExp(WHALE));
      assert.ok(saidIn(found).length < 2_000, 'more than the lines around it');
    },
  },
  readToTheEnd(
    'long structured content',
    'forecast',
    { island: 'Texel', days: LINES },
    JSON.stringify(forecast(LINES)),
  ),
  readToTheEnd('long text as FastMCP wraps it', 'diary', { lines: LINES }, ENGLISH),
  readToTheEnd('long error', 'inspect', { lines: LINES }, ENGLISH),
];

const SEARCHES: readonly Scenario[] = [
  {
    title: 'instructions and tools before the first call',
    upstream: 'everything',
    async run({ client, described }) {
      const shown = await client.shown();
      for (const text of described) assert.ok(shown.includes(text), `the model is not shown: ${text}`);
    },
  },
  {
    title: 'search, then the call it suggests',
    upstream: 'fast',
    async run({ client }) {
      const query = 'weather forecast for an island';
      const { servers } = dataIn(await client.call('switchboard', 'search_servers', { query }));
      const tools = servers.flatMap(({ id, tools: of }: Json) =>
        of.map((tool: Json) => ({ ...tool, serverId: id })),
      );
      const tool = tools.find(({ name, serverId }: Json) => name === 'forecast' && serverId === 'fast');
      assert.ok(tool, `no forecast of fast among ${tools.map(({ name }: Json) => name).join(', ')}`);
      assert.deepEqual(tool.input_schema.required, ['island', 'days']);
      const input = { island: 'Texel', days: 2 };
      assert.deepEqual(dataIn(await callRemote(client, tool.serverId, { tool: tool.name, input })), FORECAST);
    },
  },
  {
    title: 'search with server_id lists its tools',
    upstream: 'fast',
    async run({ client, unlisted }) {
      const given = await client.call('switchboard', 'search_servers', { server_id: unlisted });
      assert.notEqual(given.isError, true, `an error: ${saidIn(given).slice(0, 300)}`);
      const tools: Json[] = dataIn(given).servers[0].tools;
      const greet = tools.find(({ name }) => name === 'greet');
      assert.deepEqual(greet?.['input_schema'].required, ['name']);
      assertSucceeded(await callRemote(client, unlisted, GREET), GREETING);
    },
  },
];

/** A call that is wrong, an answer that says what is right, and then the right call. */
const mistake = (
  title: string,
  upstream: Upstream,
  { wrong, needs, right }: { wrong: Json; needs: readonly RegExp[]; right: Json },
  expected: RegExp,
): Scenario => ({
  title,
  upstream,
  async run({ client, unlisted }) {
    const call = (input: Json) =>
      client.call('switchboard', 'call_remote_tool', {
        ...input,
        ...(input['server_id'] === UNLISTED ? { server_id: unlisted } : {}),
      });
    const said = saidIn(await call(wrong));
    for (const need of needs) assert.match(said, need);
    assertSucceeded(await call(right), expected);
  },
});

const UNLISTED = 'unlisted';
const remote = (server_id: string, tool_name: string, args: unknown): Json => ({
  server_id,
  tool_name,
  arguments: args,
});
const RIGHT = remote('fast', 'greet', { name: 'Ada' });
const SUM = remote('everything', 'get-sum', { a: 3, b: 4 });
const SUM_IS = /The sum of 3 and 4 is 7/;

const MISTAKES = [
  mistake(
    'first call, wrong tool name',
    'fast',
    {
      wrong: remote(UNLISTED, 'list_tools', {}),
      needs: [/\bgreet\b/, /\bnotice\b/, /\bforecast\b/],
      right: remote(UNLISTED, 'greet', { name: 'Ada' }),
    },
    GREETING,
  ),
  mistake(
    'first call, wrong tool name',
    'everything',
    {
      wrong: remote(UNLISTED, 'list_tools', {}),
      needs: [/\becho\b/, /\bget-sum\b/, /\bget-tiny-image\b/],
      right: remote(UNLISTED, 'get-sum', { a: 3, b: 4 }),
    },
    SUM_IS,
  ),
  mistake(
    'first call, wrong tool name',
    'v2',
    {
      wrong: remote(UNLISTED, 'list_tools', {}),
      needs: [/\becho\b/, /\bregion\b/],
      right: remote(UNLISTED, 'echo', { message: 'ebb' }),
    },
    /Echo: ebb/,
  ),
  mistake(
    'misspelt tool name',
    'fast',
    { wrong: remote('fast', 'greeet', { name: 'Ada' }), needs: [/\bgreet\b/, /"name"/], right: RIGHT },
    GREETING,
  ),
  {
    title: 'unknown server id, then a search',
    upstream: 'fast',
    async run({ client }: Stage) {
      assert.match(saidIn(await callRemote(client, 'port-office', GREET)), /search/i);
      const { servers } = dataIn(
        await client.call('switchboard', 'search_servers', { query: 'harbour office' }),
      );
      assert.equal(servers[0].id, 'fast');
      assertSucceeded(await callRemote(client, servers[0].id, GREET), GREETING);
    },
  },
  mistake(
    'server name in place of its id',
    'fast',
    { wrong: remote(ENTRY_NAMES.fast, 'greet', { name: 'Ada' }), needs: [/\bfast\b/], right: RIGHT },
    GREETING,
  ),
  mistake(
    'missing argument',
    'everything',
    { wrong: remote('everything', 'get-sum', { a: 3 }), needs: [/\bb\b/, /number/], right: SUM },
    SUM_IS,
  ),
  mistake(
    'missing arguments',
    'fast',
    { wrong: { server_id: 'fast', tool_name: 'greet' }, needs: [/\bname\b/, /string/], right: RIGHT },
    GREETING,
  ),
  mistake(
    'argument of the wrong type',
    'everything',
    { wrong: remote('everything', 'get-sum', { a: 'three', b: 4 }), needs: [/\ba\b/, /number/], right: SUM },
    SUM_IS,
  ),
  mistake(
    'argument of the wrong name',
    'fast',
    { wrong: remote('fast', 'greet', { person: 'Ada' }), needs: [/\bname\b/], right: RIGHT },
    GREETING,
  ),
  mistake(
    'parameters of the wrong names',
    'fast',
    {
      wrong: { server: 'fast', tool: 'greet', arguments: { name: 'Ada' } },
      needs: [/server_id/, /tool_name/],
      right: RIGHT,
    },
    GREETING,
  ),
  {
    title: 'arguments as a string of JSON',
    upstream: 'fast',
    async run({ client }) {
      const input = remote('fast', 'greet', JSON.stringify({ name: 'Ada' }));
      assertSucceeded(await client.call('switchboard', 'call_remote_tool', input), GREETING);
    },
  },
] satisfies Scenario[];

export const SCENARIOS: readonly Scenario[] = [
  ...SEARCHES,
  ...RESULTS,
  ...MISTAKES,
  ...REFUSALS,
  ...LONG_RESULTS,
];
