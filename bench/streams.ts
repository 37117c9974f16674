/**
 * Measures what open streams and idle sessions cost: npm run bench:streams -- [--streams 10000] [--sessions 1000]
 * [--streams-per-key 500] [--events 200] [--json]
 *
 * The real program in front of one server, each a process of its own. Streams (`GET /mcp/{server_id}`) are opened over
 * several keys, as a key may have only so many. Memory is read after a collection, before, with all streams open, and after
 * they are closed. While they are open, events are sent to random streams, and their delay is measured. Sessions of
 * `/v1/mcp/tools/call` are opened by one call for each of so many users, and then idle.
 *
 * A stream takes two of the program's file descriptors, so 10,000 need `ulimit -n 20500` or more.
 */
import { Agent, get, type ClientRequest } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { openFilesLimit } from '../src/platform/open-files.ts';
import { printFacts, readSizes, refuse } from './command-line.ts';
import { Probe, type Figures } from './probe.ts';
import { Poster, startProcess, startProgram } from './processes.ts';
import { percentile } from './measures.ts';

const KEY = 'the-key-of-the-streams-bench-of-32-characters';
const KIB = 1024;
/** Descriptors of the program besides those of its streams. */
const SPARE_DESCRIPTORS = 500;
const DEFAULTS = { streams: 10_000, sessions: 1_000, 'streams-per-key': 500, events: 200 };
/** The program goes on for a while after the clients are gone. */
const SETTLE_MS = 3_000;
/** Streams that are being opened at a time. */
const OPENING = 100;

interface Stream {
  readonly request: ClientRequest;
  /** Resolves when the stream has ended, whoever ended it. */
  readonly ended: Promise<void>;
}

/** Opens a stream. @param onEvent called for each chunk @throws if it is refused */
function openStream(url: string, key: string, agent: Agent, onEvent: () => void): Promise<Stream> {
  return new Promise((resolve, reject) => {
    const headers = { 'x-api-key': key, accept: 'text/event-stream' };
    const request = get(url, { agent, headers }, response => {
      const ended = new Promise<void>(done => response.once('close', done));
      response.on('error', () => {});
      response.on('data', onEvent);
      if (response.statusCode === 200) resolve({ request, ended });
      else reject(new Error(`no stream: HTTP ${response.statusCode}`));
    }).once('error', reject);
  });
}

/** Runs the action for each number below `count`, so many at a time. */
async function forEach(count: number, atATime: number, action: (number: number) => Promise<void>) {
  let next = 0;
  const worker = async () => {
    while (next < count) await action(next++);
  };
  await Promise.all(Array.from({ length: atATime }, worker));
}

const { sizes, json } = readSizes('bench:streams', DEFAULTS);
const allowed = openFilesLimit() ?? Infinity;
const needed = 2 * sizes.streams + SPARE_DESCRIPTORS;
if (allowed < needed)
  refuse(
    `${sizes.streams} streams need ${needed} open files, but ulimit -n allows ${allowed}. Use fewer --streams.`,
  );
const probe = new Probe('streams');
await using stack = new AsyncDisposableStack();
const upstream = stack.use(await startProcess('bench/proxy/upstream.ts'));
const perKey = sizes['streams-per-key'];
const switchboard = stack.use(
  await startProgram(
    {
      streams: `${upstream.origin}/streams`,
      // Each server may have 500 sessions.
      'sessions-0': `${upstream.origin}/json`,
      'sessions-1': `${upstream.origin}/sse`,
    },
    {
      SWITCHBOARD_API_KEY: KEY,
      NODE_OPTIONS: probe.nodeOptions,
      SWITCHBOARD_MAX_STREAMS: String(sizes.streams),
      SWITCHBOARD_MAX_STREAMS_PER_KEY: String(perKey),
    },
  ),
);
const { pid, url } = switchboard.program;
const poster = new Poster();
stack.defer(() => poster.close());
const figures = () => probe.read(pid);
const each = (before: Figures, after: Figures, count: number) => ({
  rss_kib: (after.rss - before.rss) / KIB / count,
  heap_kib: (after.heap - before.heap) / KIB / count,
});

/** Creates a key of the tenant, for the user if there is one. */
async function keyOf(tenant: string, user_id?: string): Promise<string> {
  const reply = await poster.post(`${url}/v1/admin/keys`, KEY, { name: tenant, tenant, user_id });
  const { key } = JSON.parse(reply?.text ?? '{}') as { readonly key?: string };
  if (key === undefined) throw new Error(`no key: ${reply?.text}`);
  return key;
}

async function measureStreams() {
  const keys: string[] = [];
  for (let made = 0; made < Math.ceil(sizes.streams / perKey); made++)
    keys.push(await keyOf(`tenant-${made}`));
  const agent = new Agent({ keepAlive: false });
  const streams: Stream[] = [];
  let received = () => {};
  const open = async (number: number) => {
    const key = keys[Math.floor(number / perKey)] ?? '';
    streams.push(await openStream(`${url}/mcp/streams`, key, agent, () => received()));
  };
  // The code is loaded and the pools exist.
  await forEach(100, OPENING, open);
  await closeAll(streams);
  const before = await figures();
  const startedAt = performance.now();
  await forEach(sizes.streams, OPENING, open);
  const openMs = performance.now() - startedAt;
  const opened = await figures();
  const delays: number[] = [];
  for (let event = 0; event < sizes.events; event++) {
    const arrived = new Promise<void>(resolve => (received = resolve));
    const sentAt = performance.now();
    await fetch(`${upstream.origin}/event?to=one`);
    await arrived;
    delays.push(performance.now() - sentAt);
  }
  let events = 0;
  const all = new Promise<void>(resolve => {
    received = () => void (++events === sizes.streams && resolve());
  });
  const sentAt = performance.now();
  await fetch(`${upstream.origin}/event`);
  await all;
  const allMs = performance.now() - sentAt;
  const used = await figures();
  await closeAll(streams);
  const { heldMs: closingMs } = await figures();
  await delay(SETTLE_MS);
  const closed = await figures();
  return {
    streams: sizes.streams,
    opened_per_second: (sizes.streams * 1000) / openMs,
    ...prefixed('per_stream', each(before, opened, sizes.streams)),
    ...prefixed('per_stream_after_an_event', each(before, used, sizes.streams)),
    event_delay_p50_ms: percentile(delays, 0.5),
    event_delay_p99_ms: percentile(delays, 0.99),
    event_to_all_ms: allMs,
    loop_held_by_events_ms: used.heldMs,
    loop_held_by_closing_ms: closingMs,
    sockets_before: before.sockets,
    sockets_open: opened.sockets,
    sockets_after: closed.sockets,
    heap_before_mib: before.heap / KIB / KIB,
    heap_open_mib: opened.heap / KIB / KIB,
    heap_after_mib: closed.heap / KIB / KIB,
    rss_before_mib: before.rss / KIB / KIB,
    rss_open_mib: opened.rss / KIB / KIB,
    rss_after_mib: closed.rss / KIB / KIB,
  };
}

/** Ends the streams from the client's side, and waits until the program has closed its connections to the server. */
async function closeAll(streams: Stream[]): Promise<void> {
  for (const { request } of streams) request.destroy();
  await Promise.all(streams.map(stream => stream.ended));
  streams.length = 0;
  let open = '';
  for (let attempt = 0; attempt < 100 && open !== '0'; attempt++) {
    await delay(100);
    open = await (await fetch(`${upstream.origin}/event?to=none`)).text();
  }
  if (open !== '0') throw new Error(`the program keeps ${open} streams of clients that are gone`);
}

/** Opens a session for each of so many tenants, by one call of each. */
async function measureSessions() {
  // A tenant may have 100 sessions, one for each of its users' keys.
  const keys: string[] = [];
  for (let made = 0; made < sizes.sessions; made++)
    keys.push(await keyOf(`holder-${made % 20}`, `user-${made}`));
  const call = async (number: number) => {
    const body = { server_id: `sessions-${number % 2}`, name: 'echo', arguments: { size: 100 } };
    const reply = await poster.post(`${url}/v1/mcp/tools/call`, keys[number] ?? '', body);
    if (reply?.status !== 200) throw new Error(`no session: ${reply?.status} ${reply?.text}`);
  };
  await call(0);
  await call(1);
  const before = await figures();
  await forEach(keys.length, 16, call);
  const opened = await figures();
  return { sessions: keys.length, ...prefixed('per_session', each(before, opened, keys.length)) };
}

const prefixed = (prefix: string, facts: object) =>
  Object.fromEntries(Object.entries(facts).map(([name, value]) => [`${prefix}_${name}`, value as number]));

const facts = {
  ...(sizes.streams > 0 && (await measureStreams())),
  ...(sizes.sessions > 0 && (await measureSessions())),
};
if (json) console.log(JSON.stringify(facts));
else printFacts(facts);
