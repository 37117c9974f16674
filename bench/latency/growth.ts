import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { UNUSED } from '../../src/core/catalogue/usage.ts';
import type { Entry } from '../../src/core/catalogue/entry.ts';
import { toServer } from '../../src/core/catalogue/to-server.ts';
import { documentsOf } from '../../src/core/search/documents.ts';
import { wordsOf, type Embedder } from '../../src/core/search/embed/embedder.ts';
import { quantize, writeVectorFile } from '../../src/core/search/index/vectors.ts';
import { fuse } from '../../src/core/search/fusion.ts';
import { createEmbeddedIndex } from '../../src/core/search/index/search-index-embedded.ts';
import { textHash } from '../../src/core/search/index/vector-cache.ts';
import { systemClock } from '../../src/platform/time.ts';
import { openDatabase } from '../../src/platform/database/database.ts';
import { createLog } from '../../src/platform/telemetry/log.ts';
import { temporaryFolder } from '../../test/support/program.ts';
import { miniSearch } from './baseline.ts';
import { enlarged, hash, requestsFor } from './texts.ts';
import { cpuSince, latencyOf, timesOf } from './timing.ts';

const DIMENSIONS = 384;
const REQUESTS = 150;

/** Vectors of noise, the same for the same text: what a scan costs does not depend on what they mean, and embedding takes hours. */
const noise: Embedder = {
  id: 'noise',
  dimensions: DIMENSIONS,
  embed: passages => Promise.resolve(passages.map(passage => noiseOf(wordsOf(passage)))),
  close: () => Promise.resolve(),
};

function noiseOf(text: string): Float32Array {
  const vector = new Float32Array(DIMENSIONS);
  let state = hash(text);
  let squares = 0;
  for (let at = 0; at < DIMENSIONS; at++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    vector[at] = state / 2 ** 31 - 1;
    squares += (vector[at] ?? 0) ** 2;
  }
  return vector.map(component => component / Math.sqrt(squares));
}

/** Search without the embedding of the request: candidates by keyword and by a scan over all vectors, ranked. */
export async function measureGrowth(entries: readonly Entry[], count: number) {
  const grown = enlarged(entries, count);
  const requests = requestsFor(grown.slice(0, entries.length), REQUESTS);
  const baseline = await miniSearch(grown, requests);
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(temporaryFolder());
  const made = await Promise.all(grown.map(entry => toServer(entry, 'operator')));
  const servers = made.map(({ server }) => server);
  const shippedVectors = path.join(folder.path, 'vectors.bin');
  const parts = await writeNoise(shippedVectors, servers);
  const database = await openDatabase();
  opened.defer(() => database.close());
  const before = heldMiB();
  const index = await createEmbeddedIndex({
    embedder: noise,
    db: database.db,
    log: createLog('warn'),
    clock: systemClock,
    shippedVectors,
  });
  opened.defer(() => index.close());
  const startedAt = performance.now();
  await (
    await index.prepare({ upserted: servers, removed: [] })
  )();
  const index_ms = performance.now() - startedAt;
  const index_mib = heldMiB() - before;
  const search = async (request: string) =>
    fuse((await index.find(index.ask(request))).candidates, () => UNUSED).slice(0, 10);
  await timesOf(requests.slice(0, 20), search);
  const cpuBefore = process.threadCpuUsage();
  const latency = latencyOf(await timesOf(requests, search));
  const cpu_ms_a_search = cpuSince(cpuBefore) / requests.length;
  return {
    servers: count,
    texts: parts,
    ...latency,
    cpu_ms_a_search,
    index_ms,
    index_mib,
    minisearch_p50_ms: baseline.p50_ms,
    minisearch_p95_ms: baseline.p95_ms,
    minisearch_cpu_ms_a_search: baseline.cpu_ms_a_search,
    minisearch_index_ms: baseline.index_ms,
    p50_to_minisearch: latency.p50_ms / baseline.p50_ms,
  };
}

/** Writes a file of vectors for all texts of the servers. Resolves with their number. */
async function writeNoise(file: string, servers: Parameters<typeof documentsOf>[0][]): Promise<number> {
  const texts = new Set(servers.flatMap(server => documentsOf(server).parts.map(part => part.prose)));
  const entries = [...texts].map(text => [textHash(text), quantize(noiseOf(text))] as const);
  await writeFile(file, writeVectorFile({ embedderId: noise.id, dimensions: DIMENSIONS, entries }));
  return texts.size;
}

function heldMiB(): number {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  // Twice: what the first one finalises, the second one frees.
  collect();
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return (heapUsed + arrayBuffers) / 2 ** 20;
}
