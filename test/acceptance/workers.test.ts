import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { createDatabase } from '../support/postgres.ts';
import {
  eventually,
  installOnPostgres,
  onPostgres,
  parallel,
  statusesOf,
  workersBelow,
  type Installation,
  type Process,
  type Reply,
} from '../support/processes.ts';
import { begin, run, SAME_SIGNAL_MS, serve, temporaryFolder } from '../support/program.ts';
import { scrape, sumOf } from '../support/scrape.ts';
import { startV1Server, type V1Server } from '../support/upstreams/v1.ts';

/** A connection of its own, so that the next worker gets it. */
const APART = { connection: 'close' };
const MCP = { ...APART, accept: 'application/json, text/event-stream' };
const KEKS = `k1:${Buffer.alloc(32, 1).toString('base64')}`;

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe.skipIf(inject('postgresUrl') === undefined)('two workers on one port', () => {
  let stack: AsyncDisposableStack;
  let installation: Installation;
  let program: Process;
  let upstream: V1Server;
  let logFile: string;
  beforeAll(async () => {
    stack = new AsyncDisposableStack();
    upstream = stack.use(await startV1Server());
    logFile = path.join(stack.use(temporaryFolder()).path, 'log');
    installation = stack.use(
      await installOnPostgres({
        env: {
          SWITCHBOARD_WORKERS: '2',
          LOG_LEVEL: 'info',
          SWITCHBOARD_RATE_LIMIT: 'search=1000000/3600,proxy=1000000/3600,revoke=40/3600',
        },
        logFile,
        servers: [
          {
            id: 'v1',
            name: 'V1',
            description: 'Has sessions.',
            remote_url: upstream.url,
            auth: { kind: 'none' },
          },
        ],
      }),
    );
    program = await installation.start();
    await bothReady();
  });
  afterAll(() => stack.disposeAsync());

  const logged = (): any[] =>
    readFileSync(logFile, 'utf8')
      .split('\n')
      .slice(0, -1)
      .map(line => JSON.parse(line));
  /** The worker that answered, from its log; the line is written a moment after the answer. */
  async function workerOf({ headers }: Pick<Reply, 'headers'>): Promise<number> {
    const id = headers.get('x-request-id');
    const find = () => logged().find(line => line.requestId === id && line.msg === 'request')?.worker;
    await eventually('the request is in the log', () => find() !== undefined);
    return find();
  }
  const workersOf = async (replies: readonly Reply[]) => new Set(await Promise.all(replies.map(workerOf)));
  /** Sends until both workers have answered: a connection goes to whichever is free. Returns all replies. */
  async function fromBoth(send: () => Promise<Reply>): Promise<Reply[]> {
    const replies: Reply[] = [];
    await eventually('both workers answer', async () => {
      replies.push(...(await parallel(6, send)));
      return (await workersOf(replies)).size === 2;
    });
    return replies;
  }
  const ready = (worker: number) =>
    logged().filter(line => line.worker === worker && line.msg === 'ready').length;
  const bothReady = () => eventually('both are ready', () => ready(1) > 0 && ready(2) > 0);
  /** Kills the worker and waits until another process has its place. */
  async function killed(worker: number): Promise<void> {
    const restarts = ready(worker);
    process.kill(workersBelow(program.pid).get(worker) ?? Number.NaN, 'SIGKILL');
    await eventually('it is ready again', () => ready(worker) > restarts);
  }

  it('start at once on an empty database, say so once, and both answer', async () => {
    expect(program.printed.filter(line => line.startsWith('Listening on'))).toHaveLength(1);
    expect(program.printed).toContain('Workers: 2.');
    expect(logged().filter(line => line.level > 30)).toEqual([]);
    const replies = await fromBoth(() => program.post('/v1/search', { query: 'send mail' }, APART));
    expect(statusesOf(replies)).toEqual({ 200: replies.length });
  });

  it('need no sticky sessions: what was begun at one goes on at the other', async () => {
    const initialize = {
      jsonrpc: '2.0',
      id: 1,
      method: 'initialize',
      params: {
        protocolVersion: '2025-06-18',
        capabilities: {},
        clientInfo: { name: 'test', version: '1' },
      },
    };
    const call = (name: string, args: object) => ({
      jsonrpc: '2.0',
      id: 2,
      method: 'tools/call',
      params: { name, arguments: args },
    });
    const ways = {
      '/mcp': call('call_remote_tool', { server_id: 'v1', tool_name: 'echo', arguments: { message: 'hi' } }),
      '/mcp/v1': call('echo', { message: 'hi' }),
    };
    for (const [at, message] of Object.entries(ways)) {
      const begun = await program.post(at, initialize, MCP);
      const session = {
        ...MCP,
        'mcp-session-id': begun.headers.get('mcp-session-id') ?? '',
        'mcp-protocol-version': '2025-06-18',
      };
      expect(session['mcp-session-id']).not.toBe('');
      const notified = { jsonrpc: '2.0', method: 'notifications/initialized' };
      expect((await program.post(at, notified, session)).status).toBe(202);
      const replies = await fromBoth(() => program.post(at, message, { ...session, ...APART }));
      for (const { text } of replies) expect(text).toContain('hi');
    }
  });

  it('cancel a call at the other worker', async () => {
    const session = {
      ...MCP,
      'mcp-session-id': `session.${crypto.randomUUID()}`,
      'mcp-protocol-version': '2025-06-18',
    };
    const remote = { server_id: 'v1', tool_name: 'wait', arguments: {} };
    const called = upstream.inbox.count('tools/call');
    const waiting = program.post(
      '/mcp',
      {
        jsonrpc: '2.0',
        id: 7,
        method: 'tools/call',
        params: { name: 'call_remote_tool', arguments: remote },
      },
      session,
    );
    await eventually('the server has it', () => upstream.inbox.count('tools/call') > called);
    const cancel = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 7 } };
    const first = await program.post('/mcp', cancel, session);
    await upstream.cancelled;
    await waiting;
    expect(await workerOf(first)).not.toBe(await workerOf(await waiting));
  });

  it('share one budget of calls', async () => {
    const replies: Reply[] = [];
    for (let call = 0; call < 50; call++)
      replies.push(await program.post('/v1/identity/revoke', { user_id: 'nobody' }, APART));
    expect(await workersOf(replies)).toEqual(new Set([1, 2]));
    expect(statusesOf(replies)[429]).toBe(10);
    const remaining = replies.map(({ headers }) =>
      Number(/r=(\d+)/.exec(headers.get('ratelimit') ?? '')?.[1]),
    );
    for (const [at, left] of remaining.entries()) expect(left).toBeGreaterThanOrEqual(Math.max(0, 39 - at));
    expect(remaining.slice(40)).toEqual(Array(10).fill(0));
  });

  it('refuse a revoked key within two seconds', async () => {
    const made = await program.post('/v1/admin/keys', { name: 'a key', scopes: ['search'] });
    const search = () =>
      program.post('/v1/search', { query: 'mail' }, { ...APART, 'x-api-key': made.json.key });
    const known = await fromBoth(search);
    expect(statusesOf(known)).toEqual({ 200: known.length });
    expect((await program.command('keys', 'revoke', made.json.id)).code).toBe(0);
    const revokedAt = performance.now();
    const late: number[] = [];
    await eventually('both refuse it', async () => {
      const askedAfterMs = performance.now() - revokedAt;
      const replies = await parallel(6, search);
      if (statusesOf(replies)[200] === undefined) return (await workersOf(replies)).size === 2;
      late.push(askedAfterMs);
      return false;
    });
    expect(late.filter(ms => ms > 2_000)).toEqual([]);
  });

  it('answer /metrics for all of them, and lose no counts with a killed one', async () => {
    const searches = async () => {
      const samples = await scrape(program.url);
      const route = { route: '/v1/search', status: '2xx' };
      return sumOf(samples, 'switchboard_http_request_duration_seconds_count', route);
    };
    const before = await searches();
    await parallel(10, () => program.post('/v1/search', { query: 'mail' }, APART));
    await eventually('all are counted', async () => (await searches()) === before + 10);
    for (let scraped = 0; scraped < 4; scraped++) expect(await searches()).toBe(before + 10);
    const samples = await scrape(program.url);
    const workers = (state: string) => sumOf(samples, 'switchboard_workers', { state });
    expect([workers('answered'), workers('silent'), workers('down')]).toEqual([2, 0, 0]);
    // Every process has the same servers.
    expect(sumOf(samples, 'switchboard_servers')).toBe(2);
    const memory = sumOf(samples, 'process_resident_memory_bytes');
    const [one = 0, two = 0] = [...workersBelow(program.pid).values()].map(residentBytes);
    expect(memory).toBeGreaterThan(one + two);

    await killed(2);
    await eventually('both are counted again', async () => (await searches()) >= before + 10);
    const after = await scrape(program.url);
    expect(await searches()).toBe(before + 10);
    expect(sumOf(after, 'switchboard_worker_restarts_total')).toBe(1);
  });

  it('go on when one is killed, also the one that commands talk to', async () => {
    const load = { isOn: true, sent: 0, retried: 0 };
    const failures: string[] = [];
    const loop = async () => {
      while (load.isOn && failures.length === 0) {
        let status: number | undefined;
        for (let attempt = 0; attempt < 3 && status === undefined; attempt++) {
          if (attempt > 0) {
            load.retried++;
            // The connections that the client keeps to a killed worker end within a moment; at once it may take another of them.
            await setTimeout(50);
          }
          status = await program.post('/v1/search', { query: `mail ${load.sent++}` }).then(
            reply => reply.status,
            () => undefined,
          );
        }
        if (status !== 200) failures.push(`answered ${status}`);
      }
    };
    const running = parallel(4, loop);
    for (const worker of [2, 1]) await killed(worker);
    load.isOn = false;
    await running;
    expect(failures).toEqual([]);
    expect(load.sent).toBeGreaterThan(10);
    const listed = await program.command('keys', 'list', '--json');
    expect([listed.code, listed.stderr]).toEqual([0, '']);
    const replies = await fromBoth(() => program.post('/v1/search', { query: 'mail' }, APART));
    expect(statusesOf(replies)[200]).toBeGreaterThan(0);
  });

  it('end the connection that was on its way to one that is killed', async () => {
    const pid = workersBelow(program.pid).get(2) ?? Number.NaN;
    process.kill(pid, 'SIGSTOP');
    let done = 0;
    const ask = () => program.get('/healthz', APART).then(({ status }) => status);
    const asked = parallel(3, () =>
      ask()
        .catch(() => 'cut off')
        .finally(() => done++),
    );
    // The other one answers all but the one that was handed over.
    await eventually('the others are answered', () => done === 2);
    await killed(2);
    expect(Map.groupBy(await asked, how => how).get('cut off')).toHaveLength(1);
  });

  it('come back later and later if they keep ending', () => {
    const ends = logged().filter(line => line.msg === 'worker ended unexpectedly' && line.worker === 2);
    expect(ends.length).toBeGreaterThanOrEqual(3);
    for (const [at, { time, restartInMs }] of ends.entries()) {
      const before = ends[at - 1];
      // One that has served for a minute begins anew.
      const isSoon = before && Date.parse(time) - Date.parse(before.time) < 60_000;
      if (isSoon) expect(restartInMs).toBeGreaterThan(before.restartInMs);
    }
  });

  it('end together on SIGTERM, after the calls that run', async () => {
    const pids = [...workersBelow(program.pid).values()];
    expect(pids).toHaveLength(2);
    const called = upstream.inbox.count('tools/call');
    const calls = parallel(4, () =>
      program.post(
        '/v1/mcp/tools/call',
        { server_id: 'v1', name: 'echo', arguments: { message: 'hi' } },
        APART,
      ),
    );
    await eventually('the server has them', () => upstream.inbox.count('tools/call') >= called + 4);
    const stopped = program.stop('SIGTERM');
    expect(statusesOf(await calls)).toEqual({ 200: 4 });
    expect(await stopped).toBe(0);
    expect(pids.filter(isAlive)).toEqual([]);
    expect(logged().filter(line => line.msg === 'worker failed to stop')).toEqual([]);
  });

  it('serve on while they drain, and end at once at a second signal', async () => {
    program = await installation.start('draining', { SWITCHBOARD_DRAIN_MS: '300000' });
    await program.ready();
    const pids = [...workersBelow(program.pid).values()];
    process.kill(program.pid, 'SIGTERM');
    await eventually('both say so', async () => {
      const replies = await parallel(6, () => program.get('/readyz', APART));
      return replies.every(({ status, json }) => status === 503 && json.status === 'stopping');
    });
    expect((await program.post('/v1/search', { query: 'mail' }, APART)).status).toBe(200);
    await setTimeout(SAME_SIGNAL_MS);
    expect(await program.stop('SIGTERM')).toBeNull();
    await eventually('all have ended', () => !pids.some(isAlive));
  });

  it('leave no process behind when the primary is killed', async () => {
    program = await installation.start('killed');
    const pids = [...workersBelow(program.pid).values()];
    expect(pids).toHaveLength(2);
    await program.stop('SIGKILL');
    await eventually('all have ended', () => !pids.some(isAlive));
  });
});

const residentBytes = (pid: number): number =>
  1024 * Number(execFileSync('ps', ['-o', 'rss=', '-p', String(pid)], { encoding: 'utf8' }));

describe.skipIf(inject('postgresUrl') === undefined)('the start of two workers', () => {
  const settings = (folder: string, databaseUrl: string) => ({
    SWITCHBOARD_DATA_DIR: folder,
    SWITCHBOARD_CATALOGUE: 'test/support/one-server.jsonl',
    SWITCHBOARD_WORKERS: '2',
    SWITCHBOARD_KEKS: KEKS,
    PUBLIC_URL: 'http://localhost:8080',
    DATABASE_URL: databaseUrl,
    PORT: '0',
  });

  it('makes one first key, which both accept, and warns once if Postgres has too few connections', async () => {
    await using folder = temporaryFolder();
    await using database = await createDatabase();
    const [server] = await onPostgres(database.url, `select current_setting('max_connections')::int as max`);
    const poolSize = Number(server?.['max']);
    const env = { ...settings(folder.path, database.url), DATABASE_POOL_SIZE: String(poolSize) };
    const logFile = path.join(folder.path, 'log');
    await using program = await serve(env, logFile);
    const warnings = readFileSync(logFile, 'utf8').split('\n').slice(0, -1);
    expect(warnings.map(line => JSON.parse(line))).toMatchObject([
      { worker: 1, needed: 2 * (poolSize + 1), msg: expect.stringContaining('too few connections') },
    ]);
    const [, key = ''] = /^API key \(shown once\): (\S+)$/m.exec(program.printed.join('\n')) ?? [];
    await program.ready();
    const keys = await parallel(4, async () => {
      const headers = { ...APART, 'x-api-key': key };
      return (await fetch(`${program.url}/v1/admin/keys`, { headers })).json() as Promise<any>;
    });
    for (const { keys: list } of keys) expect(list).toHaveLength(1);
    expect(await program.stop('SIGTERM')).toBe(0);
  });

  it.each([
    ['Ctrl-C', 130, /"msg":"starting"/],
    ['SIGTERM', 0, /"msg":"starting"/],
    ['Ctrl-C', 130, /"worker":2[^\n]*"msg":"starting"/],
  ] as const)('stops at %s, without a key and with no process left (code %i)', async (how, code, when) => {
    await using folder = temporaryFolder();
    await using database = await createDatabase();
    const env = { ...settings(folder.path, database.url), LOG_LEVEL: 'info' };
    await using program = begin(['serve'], env, { ownGroup: true });
    await program.complaint(when);
    const pids = [...workersBelow(program.pid).values()];
    expect(pids).not.toEqual([]);
    if (how === 'Ctrl-C') program.interruptGroup();
    else program.kill('SIGTERM');
    const ended = await program.finished;
    expect(ended).toMatchObject({ code, stdout: '' });
    expect(ended.stderr.split('Stopped before the server was ready').length - 1).toBe(
      how === 'Ctrl-C' ? 1 : 0,
    );
    expect(pids.filter(isAlive)).toEqual([]);
    // It may have stopped before it made the table.
    const keys = 'create table if not exists api_keys (); select * from api_keys';
    expect(await onPostgres(database.url, keys)).toEqual([]);
  });

  it.each([
    [
      'a port in use',
      { PORT: 'taken' },
      2,
      /^switchboard: PORT: \d+ is already in use on 127\.0\.0\.1; set another port\n$/,
    ],
    ['a bad setting', { PORT: 'x' }, 2, /^switchboard: PORT: must be a port number[^\n]*\n$/],
    [
      'no database',
      { DATABASE_URL: 'postgres://127.0.0.1:1/none' },
      2,
      /^switchboard: DATABASE_URL: cannot connect: [^\n]*\n$/,
    ],
    [
      'a missing catalogue',
      { SWITCHBOARD_CATALOGUE: '/nowhere.jsonl' },
      2,
      /^switchboard: SWITCHBOARD_CATALOGUE: [^\n]*\n$/,
    ],
  ])('ends with %s, said once', async (_what, given, code, message) => {
    await using folder = temporaryFolder();
    await using database = await createDatabase();
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    const port = String((taken.address() as AddressInfo).port);
    const env: Record<string, string> = { ...settings(folder.path, database.url), ...given };
    if (env['PORT'] === 'taken') env['PORT'] = port;
    const ended = await run([], { ...env, LOG_LEVEL: 'warn' });
    taken.close();
    expect(ended).toMatchObject({ code, stdout: '' });
    expect(ended.stderr).toMatch(message);
  });
});
