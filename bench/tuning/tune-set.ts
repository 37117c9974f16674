import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { readEntries } from '../../src/core/catalogue/import-file.ts';
import { Bm25, BM25 } from '../../src/core/search/index/bm25.ts';
import { documentsOf, tokenize, textsOf } from '../../src/core/search/documents.ts';
import type { Embedder } from '../../src/core/search/embed/embedder.ts';
import { VectorStore, type QuantizedVector } from '../../src/core/search/index/vectors.ts';
import type { VectorCache } from '../../src/core/search/index/vector-cache.ts';
import { readQueries, readText, type Query } from '../query-sets.ts';

export interface TuneQuery {
  /** The vectors of its sentences as the model gives them, without an adapter. */
  readonly sentences: readonly Float32Array[];
  /** Keyword evidence by server. */
  readonly keyword: Float32Array;
  /** The same of the reference: the query as one sentence, BM25 of the server's own text and of its best tool. */
  readonly reference: { readonly sentence: Float32Array; readonly keyword: Float32Array };
  /** Servers that answer it; none for a request that nothing can serve. */
  readonly relevant: ReadonlySet<number>;
  /** Where the tools that answer it are known: their rows, and the keyword evidence by row. */
  readonly tools: { readonly relevant: ReadonlySet<number>; readonly keyword: Float32Array } | undefined;
}

/**
 * A catalogue and queries with known answers, with the evidence that the product would have. Examples that are one of the queries are
 * left out: they would be evidence that other queries lack.
 */
export interface TuneSet {
  readonly name: string;
  readonly corpus: string;
  readonly servers: number;
  /** Rows `start[s]` up to `start[s + 1]` are the parts of server s. */
  readonly start: Uint32Array;
  /** By server, how many of its first parts are its own text and its tools; examples come after them. */
  readonly described: readonly number[];
  readonly store: VectorStore;
  readonly vectors: readonly QuantizedVector[];
  readonly queries: readonly TuneQuery[];
}

interface TuneSetParts {
  readonly name: string;
  readonly corpus: string;
  readonly queries: string;
  /** Reads only every nth query. */
  readonly every?: number;
  readonly embedder: Embedder;
  readonly cache: VectorCache;
}

/** Reads the sets of a folder: NAME.corpus.jsonl and NAME.queries.jsonl, or .gz. */
export async function readTuneSets(
  folder: string,
  parts: Pick<TuneSetParts, 'embedder' | 'cache'>,
): Promise<TuneSet[]> {
  const files = (await readdir(folder)).sort();
  const sets: TuneSet[] = [];
  for (const corpus of files) {
    const name = /^(.+)\.corpus\.jsonl/.exec(corpus)?.[1];
    const queries = files.find(file => file.startsWith(`${name}.queries.jsonl`));
    if (name === undefined || queries === undefined) continue;
    const [from, asked] = [path.join(folder, corpus), path.join(folder, queries)];
    sets.push(await readTuneSet({ name, corpus: from, queries: asked, ...parts }));
  }
  return sets;
}

export async function readTuneSet({
  name,
  corpus,
  queries,
  every = 1,
  embedder,
  cache,
}: TuneSetParts): Promise<TuneSet> {
  const { entries } = readEntries(await readText(corpus), { allowHttp: true });
  const texts = (await readQueries(queries)).filter((_query, at) => at % every === 0);
  const exact = new Set(texts.map(({ query }) => query));
  const documents = entries.map(({ tools = [], examples = [], ...entry }) =>
    documentsOf({ ...entry, tools, examples: examples.filter(example => !exact.has(example)) }),
  );
  const vectors = await cache.vectorsOf(documents.flatMap(({ parts }) => parts.map(part => part.prose)));
  const start = new Uint32Array(documents.length + 1);
  const store = new VectorStore(embedder.dimensions);
  const whole = new Bm25(BM25);
  const parts = new Bm25(BM25);
  const own = new Bm25(BM25);
  let row = 0;
  for (const [server, document] of documents.entries()) {
    whole.add(server, tokenize(document.whole));
    own.add(server, tokenize(document.parts[0]?.keywords ?? missing()));
    for (const part of document.parts) {
      parts.add(row, tokenize(part.keywords));
      store.set(row, vectors[row] ?? missing());
      row++;
    }
    start[server + 1] = row;
  }
  const known = new Map(entries.map(({ id }, server) => [id, server]));
  const rowOf = ({ server: id, tool }: Query['relevant_tools'][number]) => {
    const server = known.get(id) ?? -1;
    const at = entries[server]?.tools?.findIndex(({ name: its }) => its === tool) ?? -1;
    return at < 0 ? [] : [(start[server] ?? 0) + 1 + at];
  };
  const keywordOf = (terms: readonly string[], ofServer: Bm25, skipped: 0 | 1) => {
    const keyword = ofServer.scores(terms);
    const byPart = parts.scores(terms);
    for (let server = 0; server < documents.length; server++) {
      const scores = byPart.subarray((start[server] ?? 0) + skipped, start[server + 1]);
      keyword[server] = (keyword[server] ?? 0) + scores.reduce((best, score) => Math.max(best, score), 0);
    }
    return keyword;
  };
  const asked = texts.map(({ query }) => textsOf(query));
  const embedded = await embedder.embed(
    asked.flatMap(({ sentences }) => sentences),
    'index',
  );
  const asOne = await embedder.embed(
    texts.map(({ query }) => query),
    'index',
  );
  let next = 0;
  return {
    name,
    corpus,
    servers: documents.length,
    start,
    described: entries.map(({ tools = [] }) => 1 + tools.length),
    store,
    vectors,
    queries: texts.map(({ query, relevant_servers, relevant_tools }, at) => {
      const { terms, sentences } = asked[at] ?? missing();
      const mine = embedded.slice(next, (next += sentences.length));
      const relevant = relevant_servers.flatMap(id => known.get(id) ?? []);
      const tools = relevant_tools.flatMap(rowOf);
      return {
        sentences: mine,
        keyword: keywordOf(terms, whole, 0),
        reference: {
          sentence: asOne[at] ?? missing(),
          keyword: keywordOf([...new Set(tokenize(query))], own, 1),
        },
        relevant: new Set(relevant),
        tools: tools.length === 0 ? undefined : { relevant: new Set(tools), keyword: parts.scores(terms) },
      };
    }),
  };
}

function missing(): never {
  throw new Error('every text has a vector');
}
