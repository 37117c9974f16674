/**
 * How Switchboard bears steady load and faults: npm run bench:soak -- [--minutes 30] [--rate 30] [--out bench/soak.svg] [--json]
 *
 * Three processes of the real program on a Postgres, a Redis, an identity provider and MCP servers of their own (soak/installation.ts),
 * behind a balancer (soak/balancer.ts). Operations are due by a fixed schedule, `--rate` a second (soak/load.ts), and what
 * one took counts from when it was due: a stall counts for all that were due in it. Meanwhile the parts fail, one after another
 * (soak/faults.ts). A failed operation "could have succeeded" unless a fault that it met, or met moments before, is documented to fail it so.
 * Writes a plot; exit code 1 when more than one in a thousand of those operations failed, a user's tokens were lost, a replica died by itself, or
 * more searches and calls were not counted than a killed process may take with it.
 */
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { printFacts } from './command-line.ts';
import { isMoreMissing, readLogs, settle } from './soak/accounts.ts';
import { Balancer } from './soak/balancer.ts';
import { Families } from './soak/families.ts';
import { injectFaults, type Fault } from './soak/faults.ts';
import { install } from './soak/installation.ts';
import { Load, type Operation } from './soak/load.ts';
import { plot } from './soak/plot.ts';
import { byFault, byKind, byLife, countBy, inside, tookMs, unexplained, type Seen } from './soak/report.ts';
import { Sampler, watchProcessors } from './soak/samples.ts';

/** Of the operations that could have succeeded, the share that may fail. */
const BUDGET = 0.001;
/** Of failures that nothing explains, so many are shown whole. */
const SHOWN = 20;

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '30' },
    rate: { type: 'string', default: '30' },
    out: { type: 'string', default: 'bench/soak.svg' },
    json: { type: 'boolean', default: false },
  },
});
const minutes = Number(values.minutes);
const rate = Number(values.rate);
if (!(minutes > 0 && rate > 0)) throw new Error('--minutes and --rate must be numbers above 0');

const say = (what: string) => console.error(`${new Date().toISOString().slice(11, 19)} ${what}`);

async function soak(signal: AbortSignal) {
  await using installation = await install();
  say('installed: three replicas are ready');
  using balancer = new Balancer(installation.replicas);
  const families = await Families.start(installation, balancer);
  say(`${families.size} users have signed in; the load begins`);

  const startedAt = performance.now();
  const clock = () => performance.now() - startedAt;
  const ownProcessor = process.cpuUsage();
  const sampler = new Sampler(installation.replicas, clock);
  const faults: Fault[] = [];
  const processorShare = await watchProcessors();
  const seconds = minutes * 60;
  const broken = new AbortController();
  const either = AbortSignal.any([signal, broken.signal]);
  // Where machines are slow the faults take longer than planned, and none is to be without load.
  let areFaultsOver = false;
  const isOn = (dueMs: number) => !either.aborted && (dueMs < seconds * 1_000 || !areFaultsOver);
  const [operations] = await Promise.all([
    new Load(installation, balancer, families).run(rate, isOn, clock),
    injectFaults(installation, { seconds, clock, faults }, { signal: either, say }).then(
      () => (areFaultsOver = true),
    ),
  ])
    .catch((error: unknown) => {
      broken.abort();
      throw error;
    })
    .finally(() => sampler[Symbol.dispose]());
  const { user, system } = process.cpuUsage(ownProcessor);
  const machine_processors_in_use = await processorShare();
  const seen: Seen = { operations, faults, samples: sampler.samples, scrapes: sampler.scrapes };

  const families_still_good = await families.stillGood();
  const users = families.size;
  say('stopping');
  const exitCodes = await Promise.all(installation.replicas.map(replica => replica.stop('SIGTERM')));
  return {
    seen,
    machine_processors_in_use,
    bench_processor_s: (user + system) / 1e6,
    sent_elsewhere: balancer.retried,
    tokens: { users, families_still_good, ...families.counts },
    exitCodes,
    accounts: await settle(installation, operations, faults),
    log_lines: await readLogs(installation),
  };
}

const shown = (one: Operation) => ({
  due_s: one.dueMs / 1_000,
  took_ms: tookMs(one),
  replica: one.life?.name,
  server: one.server,
  door: one.door,
  detail: one.detail,
});

const rounded = (row: object) =>
  Object.fromEntries(
    Object.entries(row).map(([name, value]) => [
      name,
      typeof value === 'number' ? Number(value.toFixed(3)) : value,
    ]),
  );

const interrupted = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interrupted.abort());
const result = await soak(interrupted.signal);
const { seen, ...rest } = result;
const wrong = unexplained(seen);
const lastedMinutes = Math.max(minutes, (seen.operations.at(-1)?.dueMs ?? 0) / 60_000);
const withoutExplained = seen.operations.filter(({ failure }) => failure === undefined).length + wrong.length;
const facts = {
  minutes: lastedMinutes,
  operations_a_second: rate,
  operations: seen.operations.length,
  machine_processors_in_use: rest.machine_processors_in_use,
  bench_processor_s: rest.bench_processor_s,
  failed: seen.operations.filter(({ failure }) => failure !== undefined).length,
  could_have_succeeded: wrong.length,
  share_that_could_have_succeeded: wrong.length / withoutExplained,
  sent_elsewhere_by_balancer: JSON.stringify(rest.sent_elsewhere),
  exit_codes_at_the_end: rest.exitCodes.join(', '),
  ...inside(seen),
};
const report = {
  facts,
  by_kind: byKind(seen),
  by_fault: byFault(seen),
  by_life: byLife(seen),
  tokens: rest.tokens,
  accounts: rest.accounts,
  log_lines: rest.log_lines,
  could_have_succeeded: { failures: countBy(wrong), examples: wrong.slice(0, SHOWN).map(shown) },
};
await writeFile(
  values.out,
  plot(`bench:soak, ${minutes} minutes at ${rate} operations a second`, lastedMinutes, seen),
);
if (values.json) console.log(JSON.stringify(report));
else {
  printFacts(facts);
  for (const table of [report.by_kind, report.by_fault, report.by_life]) console.table(table.map(rounded));
  console.dir({ ...report.accounts, tokens: report.tokens, log_lines: report.log_lines }, { depth: null });
  console.dir(report.could_have_succeeded, { depth: null });
  console.log(`plotted: ${values.out}`);
}
const isGood =
  facts.share_that_could_have_succeeded <= BUDGET &&
  rest.tokens.families_lost === 0 &&
  rest.tokens.families_still_good === rest.tokens.users &&
  rest.exitCodes.every(code => code === 0) &&
  !isMoreMissing(rest.accounts);
if (!isGood) process.exitCode = 1;
