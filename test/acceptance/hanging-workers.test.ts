import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { eventually, installOnPostgres, workersBelow, type Process } from '../support/processes.ts';
import { temporaryFolder } from '../support/program.ts';
import { scrape, sumOf } from '../support/scrape.ts';

const IMPATIENT = path.resolve('test/support/impatient.ts');
/** Longer than a worker may be silent there. */
const SUSPENDED_MS = 14_000;

describe.skipIf(inject('postgresUrl') === undefined)('a worker that hangs', () => {
  let stack: AsyncDisposableStack;
  let program: Process;
  let logFile: string;
  beforeAll(async () => {
    stack = new AsyncDisposableStack();
    logFile = path.join(stack.use(temporaryFolder()).path, 'log');
    const env = { SWITCHBOARD_WORKERS: '2', LOG_LEVEL: 'info' };
    const installation = stack.use(await installOnPostgres({ env, logFile }));
    program = await installation.start('a', {}, IMPATIENT);
    await eventually('both are ready', () => logged('ready', 1) > 0 && logged('ready', 2) > 0);
  });
  afterAll(() => stack.disposeAsync());

  /** How many lines of the log have this message and worker. */
  const logged = (msg: string, worker: number): number =>
    readFileSync(logFile, 'utf8')
      .split('\n')
      .slice(0, -1)
      .map(line => JSON.parse(line))
      .filter(line => line.msg === msg && line.worker === worker).length;
  const pidOf = (worker: number) => workersBelow(program.pid).get(worker) ?? Number.NaN;

  /** Lets the worker hang until it is reported, and go on until it answers. */
  async function hangForAWhile(worker: number): Promise<void> {
    const [reports, answers] = [
      logged('worker does not answer', worker),
      logged('worker answers again', worker),
    ];
    const pid = pidOf(worker);
    process.kill(pid, 'SIGSTOP');
    await eventually('it is reported', () => logged('worker does not answer', worker) > reports);
    process.kill(pid, 'SIGCONT');
    await eventually('it answers again', () => logged('worker answers again', worker) > answers);
  }

  it('is reported, and again when it answers', async () => {
    const workers = workersBelow(program.pid);
    await hangForAWhile(2);
    expect(workersBelow(program.pid)).toEqual(workers);
  });

  it('is not killed if the whole program was suspended', async () => {
    const workers = workersBelow(program.pid);
    const all = [program.pid, ...workers.values()];
    for (const pid of all) process.kill(pid, 'SIGSTOP');
    await delay(SUSPENDED_MS);
    for (const pid of all) process.kill(pid, 'SIGCONT');
    // The primary has asked and counted since.
    await hangForAWhile(2);
    expect(workersBelow(program.pid)).toEqual(workers);
  });

  it('is killed after a while and replaced', async () => {
    const pid = pidOf(2);
    const starts = logged('ready', 2);
    process.kill(pid, 'SIGSTOP');
    await eventually('another one is ready', () => logged('ready', 2) > starts);
    expect(pidOf(2)).not.toBe(pid);
    const kills = logged('killed a worker that does not answer', 2);
    expect(kills).toBeGreaterThan(0);
    expect(logged('worker ended unexpectedly', 2)).toBe(kills);
    expect(sumOf(await scrape(program.url), 'switchboard_worker_restarts_total')).toBe(kills);
  });

  it('is killed if it does not stop, and the program ends', async () => {
    process.kill(pidOf(2), 'SIGSTOP');
    expect(await program.stop('SIGTERM')).toBe(0);
    expect(workersBelow(program.pid)).toEqual(new Map());
    expect(logged('killed a worker that did not stop', 2)).toBe(1);
    expect(logged('killed a worker that did not stop', 1)).toBe(0);
  });
});
