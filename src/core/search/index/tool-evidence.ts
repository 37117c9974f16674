import { bestOfEach } from './best-candidates.ts';
import { documentsOf, type Described } from '../documents.ts';
import { IndexedServers } from './indexed-servers.ts';
import type { QueryVectors } from '../embed/query-vectors.ts';
import type { ToolEvidence } from './search-index.ts';
import { sentencesOf, tokenize } from '../tokenize.ts';
import type { VectorCache } from './vector-cache.ts';

interface Parts {
  readonly dimensions: number;
  readonly queryVectors: QueryVectors;
  readonly cache: VectorCache;
}

/**
 * Compares the tools of one server with a query as the index does, in an index of nothing else. Embeds none of them: whoever lists a
 * server's tools must not make others wait for that. While a tool has no vector yet, all are compared by words alone: it would lose to
 * worse ones that have one.
 */
export async function compareTools(
  query: string,
  server: Described,
  { dimensions, queryVectors, cache }: Parts,
): Promise<readonly ToolEvidence[]> {
  const { whole, parts } = documentsOf(server);
  const prose = parts.map(part => part.prose);
  const [queries, vectors] = await Promise.all([
    queryVectors.of(sentencesOf(query)),
    cache.keptVectorsOf(prose),
  ]);
  const index = new IndexedServers(dimensions);
  const terms = parts.map(({ keywords }) => tokenize(keywords));
  index.put({ id: 'compared', whole: tokenize(whole), parts: terms, vectors });
  const cosines = index.cosines(vectors.every(({ scale }) => scale > 0) ? queries : []);
  const [candidate] = bestOfEach(index.score([...new Set(tokenize(query))], cosines));
  return candidate?.tools ?? server.tools.map((_tool, at) => ({ index: at, semantic: 0, keyword: 0 }));
}
