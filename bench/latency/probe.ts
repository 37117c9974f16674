/**
 * Loaded into the measured program (`--import`): tells on a port of its own, whose number it writes to the file in
 * BENCH_PROBE, how long the event loop was held, what processor time
 * all threads have taken, and what memory is taken.
 */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { isMainThread } from 'node:worker_threads';

const file = process.env['BENCH_PROBE'];
/** How often the thread's own processor time is looked at. */
const TICK_MS = 2;
const MIB = 2 ** 20;

// Not in the program's own children and threads, which inherit the option.
if (file !== undefined && isMainThread && process.argv[1]?.endsWith('switchboard.js') === true) {
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  const processMs = () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  };
  const cpuMs = () => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1000;
  };
  let last = cpuMs();
  let longest = 0;
  setInterval(() => {
    const now = cpuMs();
    longest = Math.max(longest, now - last);
    last = now;
  }, TICK_MS).unref();
  const server = createServer((_request, response) => {
    response.end(
      JSON.stringify({
        loop_delay_max_ms: delay.max / 1e6,
        loop_delay_p99_ms: delay.percentile(99) / 1e6,
        // On a machine that is shared, what the program itself is to blame for.
        loop_cpu_max_ms: longest,
        cpu_ms: processMs(),
        rss_mib: process.memoryUsage.rss() / MIB,
      }),
    );
    delay.reset();
    longest = 0;
  });
  server.listen(0, '127.0.0.1', () => {
    writeFileSync(file, String((server.address() as AddressInfo).port));
  });
  server.unref();
}
