import { toServer } from '../../src/core/catalogue/to-server.ts';
import { documentsOf } from '../../src/core/search/documents.ts';
import { createMiniLmEmbedder } from '../../src/core/search/embed/minilm/embedder.ts';
import { latencyOf, timesOf } from './timing.ts';
import { readCatalogue } from './texts.ts';

/** Ten tokens, [CLS] and [SEP] among them. */
const TEN_TOKENS = 'create an issue in our bug tracker now';
const EIGHT_SENTENCES = Array.from(
  { length: 8 },
  (_, at) => `${TEN_TOKENS.replace('issue', `issue ${at}`)}.`,
);

const QUERIES = 300;

/** The model alone, in this process. @param file the catalogue whose tool texts are embedded */
export async function measureEmbedding(file: string, texts: number) {
  const alone = await createMiniLmEmbedder({ threads: 1 });
  await timesOf(Array(30).fill(TEN_TOKENS), text => alone.embed([text], 'query'));
  const before = process.cpuUsage();
  const query = latencyOf(
    await timesOf(Array<string>(QUERIES).fill(TEN_TOKENS), text => alone.embed([text], 'query')),
  );
  const { user, system } = process.cpuUsage(before);
  await alone.close();

  const embedder = await createMiniLmEmbedder();
  const together = () => Promise.all(EIGHT_SENTENCES.map(sentence => embedder.embed([sentence], 'query')));
  const sentences = latencyOf(await timesOf(Array.from({ length: 30 }), together));
  const entries = await readCatalogue(file);
  const made = await Promise.all(entries.map(entry => toServer(entry, 'operator')));
  const prose = made.flatMap(({ server }) =>
    documentsOf(server)
      .parts.slice(1)
      .map(part => part.prose),
  );
  const step = Math.max(1, Math.floor(prose.length / texts));
  const sample = prose.filter((_, at) => at % step === 0).slice(0, texts);
  const startedAt = performance.now();
  const batch = embedder.embed(sample, 'index');
  // A search while an import is under way: what it waits for is one job.
  const beside = await timesOf(Array<string>(15).fill(TEN_TOKENS), text => embedder.embed([text], 'query'));
  await batch;
  const besideMs = performance.now() - startedAt;
  const quietAt = performance.now();
  await embedder.embed(sample, 'index');
  const seconds = (performance.now() - quietAt) / 1000;
  await embedder.close();
  return {
    query_p50_ms: query.p50_ms,
    query_p95_ms: query.p95_ms,
    // What it takes when nothing else does: on a shared machine the times above say more of the others.
    query_cpu_ms: (user + system) / 1000 / QUERIES,
    eight_sentences_p50_ms: sentences.p50_ms,
    query_beside_import_p50_ms: latencyOf(beside).p50_ms,
    query_beside_import_max_ms: Math.max(...beside),
    tool_texts_per_second: sample.length / seconds,
    tool_texts_per_second_beside_queries: sample.length / (besideMs / 1000),
  };
}
