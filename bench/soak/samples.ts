import { readdir, readFile } from 'node:fs/promises';
import { scrape, sumOf } from '../../test/support/scrape.ts';
import type { Name, Replica } from './replicas.ts';

const MIB_OF_KIB = 1 / 1_024;
const SAMPLE_EVERY_MS = 1_000;
/** `/metrics` costs the replica more than a look into /proc. */
const SCRAPE_EVERY = 5;

/** What a replica held at a moment, in milliseconds since the load began. */
export interface Sample {
  readonly atMs: number;
  readonly name: Name;
  /** Which of its lives. */
  readonly life: number;
  readonly rssMib: number;
  readonly descriptors: number;
}

/** What a replica says of itself. */
export interface Scrape {
  readonly atMs: number;
  readonly name: Name;
  readonly life: number;
  /** Of this life so far. */
  readonly processorSec: number;
  /** 99th percentile since the scrape before, in milliseconds. */
  readonly eventLoopLagMs: number;
  /** Queries that wait for a connection to Postgres, and connections in use. */
  readonly poolWaiting: number;
  readonly poolBusy: number;
}

/** Looks at each replica once a second until disposed of. */
export class Sampler implements Disposable {
  readonly samples: Sample[] = [];
  readonly scrapes: Scrape[] = [];
  readonly #replicas: readonly Replica[];
  readonly #clock: () => number;
  readonly #timer: NodeJS.Timeout;
  #ticks = 0;

  constructor(replicas: readonly Replica[], clock: () => number) {
    this.#replicas = replicas;
    this.#clock = clock;
    this.#timer = setInterval(() => this.#tick(), SAMPLE_EVERY_MS);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  #tick(): void {
    const withScrape = this.#ticks++ % SCRAPE_EVERY === 0;
    for (const replica of this.#replicas) {
      // One that is just ending or starting has nothing to say.
      this.#sample(replica).catch(() => {});
      if (withScrape) this.#scrape(replica).catch(() => {});
    }
  }

  async #sample({ name, life }: Replica): Promise<void> {
    if (!life) return;
    const { pid } = life.program;
    const [status, descriptors] = await Promise.all([
      readFile(`/proc/${pid}/status`, 'utf8'),
      readdir(`/proc/${pid}/fd`),
    ]);
    const rssKib = Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]);
    if (Number.isNaN(rssKib)) return;
    const held = { rssMib: rssKib * MIB_OF_KIB, descriptors: descriptors.length };
    this.samples.push({ atMs: this.#clock(), name, life: life.number, ...held });
  }

  async #scrape({ name, life }: Replica): Promise<void> {
    if (!life) return;
    const seen = await scrape(life.program.url);
    this.scrapes.push({
      atMs: this.#clock(),
      name,
      life: life.number,
      processorSec: sumOf(seen, 'process_cpu_seconds_total'),
      eventLoopLagMs: sumOf(seen, 'nodejs_eventloop_lag_p99_seconds') * 1_000,
      poolWaiting: sumOf(seen, 'switchboard_database_pool', { state: 'waiting' }),
      poolBusy: sumOf(seen, 'switchboard_database_pool', { state: 'busy' }),
    });
  }
}

/** Share of the machine's processors in use, between its making and each call. */
export async function watchProcessors(): Promise<() => Promise<number>> {
  const before = await processorTimes();
  return async () => {
    const after = await processorTimes();
    return 1 - (after.idle - before.idle) / (after.total - before.total);
  };
}

async function processorTimes(): Promise<{ idle: number; total: number }> {
  const line = (await readFile('/proc/stat', 'utf8')).split('\n', 1)[0] ?? '';
  // user nice system idle iowait irq softirq steal (proc_stat(5))
  const times = line.split(/\s+/).slice(1, 9).map(Number);
  const idle = (times[3] ?? 0) + (times[4] ?? 0);
  return { idle, total: times.reduce((sum, time) => sum + time, 0) };
}
