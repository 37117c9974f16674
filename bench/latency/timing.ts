import { percentile } from '../measures.ts';

export interface Latency {
  readonly p50_ms: number;
  readonly p95_ms: number;
}

export const latencyOf = (times: readonly number[]): Latency => ({
  p50_ms: percentile(times, 0.5),
  p95_ms: percentile(times, 0.95),
});

/** Processor time that this thread has taken since then, in milliseconds. */
export function cpuSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}

/** Milliseconds that each call takes, one at a time. */
export async function timesOf<Input>(
  inputs: readonly Input[],
  call: (input: Input) => unknown,
): Promise<number[]> {
  const times: number[] = [];
  for (const input of inputs) {
    const startedAt = performance.now();
    await call(input);
    times.push(performance.now() - startedAt);
  }
  return times;
}

/** The same with so many calls under way at once, and how many are done a second. */
export async function concurrently<Input>(
  inputs: readonly Input[],
  width: number,
  call: (input: Input) => Promise<unknown>,
): Promise<Latency & { per_second: number }> {
  const queue = inputs.values();
  const startedAt = performance.now();
  // One iterator for all of them: each takes what comes next.
  const lanes = await Promise.all(Array.from({ length: width }, () => lane(queue, call)));
  const seconds = (performance.now() - startedAt) / 1000;
  return { ...latencyOf(lanes.flat()), per_second: inputs.length / seconds };
}

async function lane<Input>(
  queue: Iterable<Input>,
  call: (input: Input) => Promise<unknown>,
): Promise<number[]> {
  const times: number[] = [];
  for (const input of queue) {
    const startedAt = performance.now();
    await call(input);
    times.push(performance.now() - startedAt);
  }
  return times;
}
