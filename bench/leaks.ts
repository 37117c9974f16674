/**
 * Whether the proxy keeps anything it should not: npm run bench:leaks -- [--calls 20000] [--abandoned 2000] [--clients 32] [--json]
 *
 * The real program in front of four servers in a process of their own (stateless with JSON and with SSE answers, stateful
 * with sessions, and HTTP+SSE), called through all doors by many tenants and users; abandoned callers are spread
 * evenly among the calls and close their connection at a random moment. Memory is read at twenty marks, after a collection.
 * "Flat" means that the regression over the last half of the marks grows by less than 10 %.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { printFacts, readSizes } from './command-line.ts';
import { growth } from './measures.ts';
import { Probe } from './probe.ts';
import { Poster, startProgram, startUpstream, type Switchboard } from './processes.ts';

const TENANTS = 4;
const USERS_PER_TENANT = 3;
const MARKS = 20;
const MIB = 2 ** 20;

interface Mark {
  readonly calls: number;
  readonly rssMib: number;
  readonly heapMib: number;
  /** TCP connections of the program, of either side. */
  readonly sockets: number;
}

async function readMark(probe: Probe, switchboard: Switchboard, calls: number): Promise<Mark> {
  const { rss, heap, sockets } = await probe.read(switchboard.program.pid);
  return { calls, rssMib: rss / MIB, heapMib: heap / MIB, sockets };
}

/** The doors, in turn. */
const DOORS: readonly ((
  server: string,
  name: string,
  args: object,
) => readonly [at: string, body: object])[] = [
  (server_id, name, args) => ['/v1/mcp/tools/call', { server_id, name, arguments: args }],
  (server_id, name, args) => [
    '/v1/mcp/call',
    { server_id, method: 'tools/call', params: { name, arguments: args }, id: 1 },
  ],
  server_id => ['/v1/mcp/tools/list', { server_id }],
  (server_id, tool_name, args) => [
    '/mcp',
    {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'call_remote_tool', arguments: { server_id, tool_name, arguments: args } },
    },
  ],
];

const turn = <T>(list: readonly T[], number: number): T => {
  const item = list[Math.floor(number) % list.length];
  if (item === undefined) throw new Error('an empty list has no turns');
  return item;
};

const DEFAULTS = { calls: 20_000, abandoned: 2_000, clients: 32 };

async function measure({ calls, abandoned, clients }: typeof DEFAULTS) {
  await using upstream = await startUpstream();
  const servers = ['json', 'sse', 'legacy', 'oldest'];
  const probe = new Probe('leaks');
  await using switchboard = await startProgram(
    Object.fromEntries(servers.map(id => [id, `${upstream.origin}/${id}`])),
    { NODE_OPTIONS: probe.nodeOptions },
  );
  const keys: string[] = [];
  for (let tenant = 0; tenant < TENANTS; tenant++) {
    for (let user = 0; user < USERS_PER_TENANT; user++)
      keys.push(await switchboard.key(`tenant-${tenant}`, user === 0 ? undefined : `user-${user}`));
  }

  const poster = new Poster();
  const total = calls + abandoned;
  const abandonEvery = Math.round(total / Math.max(1, abandoned));
  const done = { answered: 0, abandoned: 0, gone: 0, wrong: new Map<string, number>() };
  const abandon = async (at: string, key: string, body: object) => {
    const reply = await poster.post(at, key, body, { abandonAfterMs: Math.random() * 50 });
    done.abandoned++;
    if (!reply) done.gone++;
  };
  const call = async (at: string, key: string, body: object) => {
    const reply = await poster.post(at, key, body);
    done.answered++;
    if (reply?.status === 200 && /"ok |"tools"/.test(reply.text)) return;
    const what = `${reply?.status} ${reply?.text.slice(0, 200)} from ${at} for ${JSON.stringify(body)}`;
    done.wrong.set(what, (done.wrong.get(what) ?? 0) + 1);
  };
  const one = (number: number) => {
    const server = turn(servers, number);
    const key = turn(keys, number / servers.length);
    const door = turn(DOORS, number / servers.length / keys.length);
    const isAbandoned = number % abandonEvery === 0;
    const [at, body] = door(server, isAbandoned ? 'wait' : 'echo', isAbandoned ? { ms: 40 } : {});
    const url = switchboard.program.url + at;
    return isAbandoned ? abandon(url, key, body) : call(url, key, body);
  };
  const marks: Mark[] = [];
  const startedAt = performance.now();
  let next = 0;
  for (let mark = 1; mark <= MARKS; mark++) {
    const until = Math.round((total * mark) / MARKS);
    const client = async () => {
      while (next < until) await one(next++);
    };
    await Promise.all(Array.from({ length: clients }, client));
    marks.push(await readMark(probe, switchboard, until));
  }
  const seconds = (performance.now() - startedAt) / 1_000;
  poster.close();
  // Idle connections to servers are closed after 4 s.
  await delay(6_000);
  const rest = await readMark(probe, switchboard, total);
  const open = await upstream.state();
  const exitCode = await switchboard.program.stop();
  const closed = await upstream.state();
  const half = marks.slice(MARKS / 2);
  const facts = {
    calls: done.answered,
    abandoned_callers: done.abandoned,
    of_them_gone_before_the_answer: done.gone,
    wrong_answers: [...done.wrong.values()].reduce((sum, count) => sum + count, 0),
    calls_per_second: total / seconds,
    upstream_saw_closed: open.abandoned,
    rss_growth_last_half: growth(half.map(mark => mark.rssMib)),
    heap_growth_last_half: growth(half.map(mark => mark.heapMib)),
    heap_mib_at_half: half[0]?.heapMib,
    heap_mib_at_rest: rest.heapMib,
    rss_mib_at_half: half[0]?.rssMib,
    rss_mib_at_rest: rest.rssMib,
    program_sockets_at_rest: rest.sockets,
    upstream_sockets_at_rest: open.openSockets,
    owners_of_sessions: keys.length * 2,
    sessions_made: open.sessions,
    sessions_open_at_rest: open.openSessions,
    sessions_open_after_stop: closed.openSessions,
    exit_code: exitCode,
  };
  return { marks: [...marks, rest], wrong: [...done.wrong], facts };
}

const { sizes, json } = readSizes('bench:leaks', DEFAULTS);
const result = await measure(sizes);
const { marks, wrong, facts } = result;
const isFlat =
  facts.rss_growth_last_half < 0.1 &&
  facts.heap_growth_last_half < 0.1 &&
  facts.sessions_open_after_stop === 0;
if (json) console.log(JSON.stringify({ ...result, flat: isFlat }));
else {
  for (const { calls, rssMib, heapMib, sockets } of marks)
    console.log(
      `${calls} calls: RSS ${rssMib.toFixed(1)} MiB, heap ${heapMib.toFixed(1)} MiB, ${sockets} sockets`,
    );
  for (const [what, count] of wrong) console.log(`${count} × ${what}`);
  printFacts(facts);
  console.log(isFlat ? 'flat' : 'NOT flat');
}
if (!isFlat || wrong.length > 0) process.exitCode = 1;
