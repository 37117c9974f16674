/**
 * Tells what a process holds, at a signal: code that is loaded into the process, and its reader.
 */
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

/** Figures of a process, after a collection. Sizes are in bytes. */
export interface Figures {
  readonly rss: number;
  /** The heap, and what is outside it in buffers. */
  readonly heap: number;
  /** TCP connections of either side. */
  readonly sockets: number;
  /** The longest time since the last reading in which the event loop did nothing else, in milliseconds. */
  readonly heldMs: number;
  readonly at: number;
}

/** Loaded into the process: at SIGUSR2 it collects and writes down its figures. */
const code = (file: string) => `
import { renameSync, writeFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';
const RESOLUTION_MS = 1;
const delays = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
delays.enable();
process.on('SIGUSR2', () => {
  const heldMs = Math.max(0, delays.max / 1e6 - RESOLUTION_MS);
  gc(); gc();
  const { rss, heapUsed, arrayBuffers } = process.memoryUsage();
  const sockets = process.getActiveResourcesInfo().filter(name => name === 'TCPSocketWrap').length;
  // The collection is no delay of the next reading.
  setTimeout(() => {
    delays.reset();
    const text = JSON.stringify({ rss, heap: heapUsed + arrayBuffers, sockets, heldMs, at: Date.now() });
    writeFileSync(${JSON.stringify(file)} + '.new', text);
    renameSync(${JSON.stringify(file)} + '.new', ${JSON.stringify(file)});
  }, 10);
});`;

export class Probe {
  readonly #file: string;

  constructor(name: string) {
    this.#file = path.join(tmpdir(), `${name}-${process.pid}.json`);
  }

  /** The options of Node that load the probe as a program starts. */
  get nodeOptions(): string {
    const url = `data:text/javascript,${encodeURIComponent(code(this.#file))}`;
    return `--expose-gc --max-semi-space-size=16 --import=${url}`;
  }

  /** Reads the process's figures. @throws if it does not answer in a minute */
  async read(pid: number): Promise<Figures> {
    const askedAt = Date.now();
    process.kill(pid, 'SIGUSR2');
    for (let attempt = 0; attempt < 6_000; attempt++) {
      const figures = JSON.parse(await readFile(this.#file, 'utf8').catch(() => '{"at":0}')) as Figures;
      if (figures.at >= askedAt) return figures;
      await delay(10);
    }
    throw new Error('the process did not say what it holds');
  }
}
