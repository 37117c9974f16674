/**
 * Whether one dead server slows another: npm run bench:fairness -- [--rounds 5] [--calls 300] [--rate 50] [--json]
 *
 * The real program, a healthy server in one process and the bad ones in another. Calls of the healthy server start at a fixed
 * rate (a second), whatever becomes of those before; each round measures them alone and then while as many calls a second go
 * to a server that hangs, refuses connections, answers HTTP 500, or, for comparison, is as well as the first, turn about. Who
 * calls a bad server gives up after a second. One tenant makes all calls: nothing but the server tells them apart. Each is
 * tried once before, so that what is measured is the state that lasts.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { refusedPort } from '../test/support/upstreams/http.ts';
import { readSizes } from './command-line.ts';
import { Poster, startProgram, startUpstream } from './processes.ts';
import { percentile } from './measures.ts';

const GIVE_UP_MS = 1_000;
const OTHERS = ['hang', 'refuse', 'failing', 'well'] as const;

const DEFAULTS = {
  rounds: 5,
  calls: 300,
  /** Calls a second to each server. */
  rate: 50,
};

async function measure({ rounds, calls, rate }: typeof DEFAULTS) {
  await using healthy = await startUpstream();
  await using bad = await startUpstream();
  await using switchboard = await startProgram({
    healthy: `${healthy.origin}/json`,
    hang: `${bad.origin}/hang`,
    failing: `${bad.origin}/failing`,
    well: `${bad.origin}/json`,
    refuse: `http://127.0.0.1:${await refusedPort()}/mcp`,
  });
  const key = await switchboard.key('bench');
  const poster = new Poster();
  const url = `${switchboard.program.url}/v1/mcp/tools/call`;
  const bodyFor = (server_id: string) => ({ server_id, name: 'echo', arguments: {} });

  const callHealthy = async (times: number[]) => {
    const startedAt = performance.now();
    const reply = await poster.post(url, key, bodyFor('healthy'));
    if (reply?.status !== 200) throw new Error(`the healthy server: ${reply?.status} ${reply?.text}`);
    times.push(performance.now() - startedAt);
  };

  const callOther = async (server: string, replies: Map<string, number>) => {
    const reply = await poster.post(url, key, bodyFor(server), { abandonAfterMs: GIVE_UP_MS });
    const code = reply ? ((JSON.parse(reply.text) as { code?: string }).code ?? 'ok') : 'given up';
    replies.set(code, (replies.get(code) ?? 0) + 1);
  };

  const round = async (other?: string) => {
    const times: number[] = [];
    const replies = new Map<string, number>();
    const underWay: Promise<void>[] = [];
    const startedAt = performance.now();
    for (let number = 0; number < calls; number++) {
      const waitMs = startedAt + (number * 1_000) / rate - performance.now();
      if (waitMs > 0) await delay(waitMs);
      if (other !== undefined) underWay.push(callOther(other, replies));
      underWay.push(callHealthy(times));
    }
    await Promise.all(underWay);
    return { p50: percentile(times, 0.5), p99: percentile(times, 0.99), replies };
  };

  await round();
  for (const server of OTHERS) await round(server);
  const results = new Map<string, { p50: number[]; p99: number[]; p99Ratio: number[]; p50Ratio: number[] }>();
  const replies = new Map<string, Map<string, number>>();
  const note = (
    name: string,
    { p50, p99 }: { p50: number; p99: number },
    alone: { p50: number; p99: number },
  ) => {
    const result = results.get(name) ?? { p50: [], p99: [], p99Ratio: [], p50Ratio: [] };
    results.set(name, result);
    result.p50.push(p50);
    result.p99.push(p99);
    result.p50Ratio.push(p50 / alone.p50);
    result.p99Ratio.push(p99 / alone.p99);
  };
  for (let at = 0; at < rounds; at++) {
    for (const server of OTHERS) {
      const alone = await round();
      const beside = await round(server);
      note(`alone (before ${server})`, alone, alone);
      note(`beside ${server}`, beside, alone);
      replies.set(server, beside.replies);
    }
  }
  poster.close();
  return { results, replies };
}

const { sizes, json } = readSizes('bench:fairness', DEFAULTS);
const { results, replies } = await measure(sizes);
const spread = (list: readonly number[]) =>
  `${percentile(list, 0.5).toFixed(2)} (${Math.min(...list).toFixed(2)}–${Math.max(...list).toFixed(2)})`;
if (json) console.log(JSON.stringify({ results: [...results], replies: [...replies] }));
else {
  for (const [name, { p50, p99, p50Ratio, p99Ratio }] of results) {
    console.log(name.padEnd(24), `p50 ${spread(p50)} ms, p99 ${spread(p99)} ms`);
    if (name.startsWith('beside'))
      console.log(''.padEnd(24), `to alone: p50 × ${spread(p50Ratio)}, p99 × ${spread(p99Ratio)}`);
  }
  for (const [server, codes] of replies) console.log(`what ${server} got:`, Object.fromEntries(codes));
}
