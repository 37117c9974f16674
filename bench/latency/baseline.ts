import MiniSearch from 'minisearch';
import type { Entry } from '../../src/core/catalogue/entry.ts';
import { cpuSince, latencyOf, timesOf, type Latency } from './timing.ts';

/** Plain keyword search with MiniSearch as it comes, in this process: a document a server with all its texts. */
export async function miniSearch(
  entries: readonly Entry[],
  requests: readonly string[],
): Promise<Latency & { index_ms: number; cpu_ms_a_search: number }> {
  const search = new MiniSearch({ fields: ['text'] });
  const startedAt = performance.now();
  search.addAll(
    entries.map(({ id, name, description, tools = [] }) => ({
      id,
      text: [name, description, ...tools.flatMap(tool => [tool.name, tool.description])].join(' '),
    })),
  );
  const index_ms = performance.now() - startedAt;
  const find = (request: string) => search.search(request).slice(0, 10);
  for (const request of requests.slice(0, 20)) find(request);
  const cpuBefore = process.threadCpuUsage();
  const latency = latencyOf(await timesOf(requests, find));
  return { ...latency, index_ms, cpu_ms_a_search: cpuSince(cpuBefore) / requests.length };
}
