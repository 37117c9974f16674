import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Balancer, type Target } from '../support/balancer.ts';
import {
  eventually,
  installOnPostgres,
  parallel,
  statusesOf,
  type Installation,
  type Process,
} from '../support/processes.ts';
import { startRedis, type RedisServer } from '../support/redis.ts';

const NAMES = ['a', 'b', 'c'] as const;
type Name = (typeof NAMES)[number];
const KINDS = ['search', 'call', 'refresh'] as const;
type Kind = (typeof KINDS)[number];
/** Loops of each kind; of `refresh` one a user. */
const LOOPS = 2;
/** What each process has to have answered, of each kind, for a phase to be over. */
const ENOUGH = 8;

describe.skipIf(inject('postgresUrl') === undefined || !inject('hasRedis'))(
  'three processes on one Postgres and one Redis',
  () => {
    let stack: AsyncDisposableStack;
    let redis: RedisServer;
    let installation: Installation;
    let targets: Record<Name, Target>;
    beforeAll(async () => {
      stack = new AsyncDisposableStack();
      redis = stack.use(await startRedis());
      installation = stack.use(
        await installOnPostgres({
          env: {
            REDIS_URL: redis.url,
            SWITCHBOARD_RATE_LIMIT:
              'search=1000000/3600,proxy=1000000/3600,refresh=1000000/3600,revoke=6/3600',
          },
        }),
      );
      const started = await Promise.all(NAMES.map(async name => [name, await target(name)] as const));
      targets = Object.fromEntries(started) as Record<Name, Target>;
    });
    afterAll(() => stack.disposeAsync());

    async function target(name: Name): Promise<Target> {
      const process = await installation.start(name);
      await process.ready();
      return { name, process };
    }

    const restart = async (name: Name) => void (targets[name].process = (await target(name)).process);
    const all = (): Process[] => NAMES.map(name => targets[name].process);
    const degraded = async (process: Process) => (await process.get('/readyz')).json.degraded as string[];

    it('spend one budget of calls', async () => {
      const replies = [];
      for (let call = 0; call < 9; call++) {
        const process = all()[call % 3];
        if (process) replies.push(await process.revoke('nobody'));
      }
      expect(replies.map(({ status }) => status === 429)).toEqual([
        ...Array(6).fill(false),
        true,
        true,
        true,
      ]);
      const remaining = replies.map(({ headers }) => /r=(\d+)/.exec(headers.get('ratelimit') ?? '')?.[1]);
      expect(remaining).toEqual(['5', '4', '3', '2', '1', '0', '0', '0', '0']);
    });

    it('have one catalogue: what is added and ended at one is found and refused at the others', async () => {
      const [a, b, c] = all();
      if (!a || !b || !c) throw new Error('three processes');
      const finds = async (process: Process) => {
        const { json } = await process.post('/v1/search', { query: 'the way to an address' });
        return json.servers.some(({ id }: { id: string }) => id === 'maps') as boolean;
      };
      const { origin } = new URL(installation.upstream.url);
      const added = await b.command(
        'catalogue',
        'add',
        'maps',
        `${origin}/maps`,
        '--description',
        'Finds the way to an address.',
      );
      expect(added.code, added.stderr).toBe(0);
      for (const process of [b, a, c]) await eventually('it is found', () => finds(process));
      expect((await c.command('catalogue', 'deactivate', 'maps')).code).toBe(0);
      for (const process of [c, a, b])
        await eventually('it is refused', async () => {
          const call = { server_id: 'maps', method: 'tools/list' };
          return (await process.post('/v1/mcp/call', call)).status === 410;
        });
      expect(await parallel(3, index => finds(all()[index] ?? a))).toEqual([false, false, false]);
    });

    it('answer every call while one is stopped, one is killed and Redis is gone, and lose nothing', async () => {
      const users = await parallel(LOOPS, index => targets.a.process.connect(`user-${index}`));
      const received = installation.upstream.inbox.count('tools/call');
      const balancer = new Balancer(Object.values(targets));
      const failures: string[] = [];
      const answered = Object.fromEntries(
        NAMES.map(name => [name, { search: 0, call: 0, refresh: 0 }]),
      ) as Record<Name, Record<Kind, number>>;
      const sum = (kind: Kind) => NAMES.reduce((total, name) => total + answered[name][kind], 0);
      const load = { isOn: true };
      let sent = 0;

      const once: Record<Kind, (loop: number) => Promise<void>> = {
        async search() {
          const query = `send mail number ${++sent}`;
          const { reply, name } = await balancer.send(process => process.post('/v1/search', { query }));
          if (reply.status === 200) answered[name as Name].search++;
          else failures.push(`search ${reply.status}: ${reply.text}`);
        },
        async call(loop) {
          const { reply, name } = await balancer.send(process => process.callTool(users[loop] ?? missing()));
          if (reply.json.result?.content?.[0]?.text === 'Echo: hi') answered[name as Name].call++;
          else failures.push(`call ${reply.status}: ${reply.text}`);
        },
        async refresh(loop) {
          const { refresh_token } = users[loop] ?? missing();
          const headers = { 'idempotency-key': `refresh-${++sent}` };
          const { reply, name } = await balancer.send(process => process.refresh(refresh_token, headers));
          if (reply.status === 200) {
            users[loop] = reply.json;
            answered[name as Name].refresh++;
          } else failures.push(`refresh ${reply.status}: ${reply.text}`);
        },
      };
      const loops = () =>
        KINDS.flatMap(kind =>
          Array.from({ length: LOOPS }, async (_, loop) => {
            while (load.isOn && failures.length === 0)
              await once[kind](loop).catch((error: unknown) => failures.push(`${kind}: ${String(error)}`));
          }),
        );
      /** Until each of them has answered enough more, or something has failed. */
      const more = async (...names: readonly Name[]) => {
        const before = structuredClone(answered);
        const isEnough = () =>
          names.every(name => KINDS.every(kind => answered[name][kind] - before[name][kind] >= ENOUGH));
        await eventually('enough is answered', () => failures.length > 0 || isEnough());
        expect(failures).toEqual([]);
      };
      const counted = async () => {
        const [row] = await installation.sql(
          `select (select coalesce(sum(successes), 0)::int from server_usage) as call, (select count(*)::int from query_log where query like 'send mail number %') as search,
                  (select coalesce(sum(failures), 0)::int from server_usage) as failed`,
        );
        return row as { call: number; search: number; failed: number };
      };
      const whole = () => ({ call: sum('call'), search: sum('search'), failed: 0 });

      let running = loops();
      await more('a', 'b', 'c');
      expect(await targets.b.process.stop('SIGTERM')).toBe(0);
      await more('a', 'c');
      await restart('b');
      await more('b');
      load.isOn = false;
      await Promise.all(running);
      expect(failures).toEqual([]);
      await eventually(
        'all is counted',
        async () => (await counted()).call >= sum('call') && (await counted()).search >= sum('search'),
      );
      // What was stopped with a signal had written what it counted: each call once, none twice.
      expect(await counted()).toEqual(whole());
      expect(installation.upstream.inbox.count('tools/call') - received).toBe(sum('call'));

      const written = structuredClone(answered.c);
      load.isOn = true;
      running = loops();
      await more('a', 'b', 'c');
      await targets.c.process.stop('SIGKILL');
      const lost = { call: answered.c.call - written.call, search: answered.c.search - written.search };
      await more('a', 'b');
      await redis.kill();
      await more('a', 'b');
      expect(await degraded(targets.a.process)).toEqual([
        'Redis unavailable: each program counts rate limits separately',
      ]);
      await restart('c');
      await more('c');
      await redis.start();
      for (const process of all())
        await eventually('Redis recovered', async () => (await degraded(process)).length === 0);
      await more('a', 'b', 'c');
      load.isOn = false;
      await Promise.all(running);
      expect(failures).toEqual([]);

      // Of what the killed one had answered, its last second may be uncounted; a call it was killed in was made again.
      for (const kind of ['call', 'search'] as const)
        await eventually(
          'all but that is counted',
          async () => (await counted())[kind] >= sum(kind) - lost[kind],
        );
      expect((await counted()).search).toBeLessThanOrEqual(sum('search') + KINDS.length * LOOPS);
      expect((await counted()).call).toBeLessThanOrEqual(
        installation.upstream.inbox.count('tools/call') - received,
      );
      expect(await counted()).toMatchObject({ failed: 0 });

      // No refresh token was lost: the last of each user's is good at every process, one after another.
      for (const process of all())
        for (const [loop, { refresh_token }] of users.entries()) {
          const refreshed = await process.refresh(refresh_token);
          expect([refreshed.status, refreshed.json.error]).toEqual([200, undefined]);
          users[loop] = refreshed.json;
        }
      const calls = await parallel(all().length, index =>
        (all()[index] ?? missing()).callTool(users[0] ?? missing()),
      );
      expect(statusesOf(calls)).toEqual({ 200: 3 });
      // The load met both ends, and what it did then was to send again.
      expect(Object.keys(balancer.retried)).toContain('ECONNREFUSED');
    });
  },
);

const missing = (): never => {
  throw new Error('missing');
};
