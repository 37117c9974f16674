import { SCOPES, type Caller } from '../../../src/core/access/caller.ts';
import type { WholeCatalogue } from '../../../src/core/catalogue/catalogue.ts';
import type { Entry, Server } from '../../../src/core/catalogue/entry.ts';
import type { SearchIndex } from '../../../src/core/search/index/search-index.ts';
import {
  wordsOf,
  type Embedder,
  type EmbeddingPurpose,
  type Passage,
} from '../../../src/core/search/embed/embedder.ts';
import { createNgramEmbedder } from '../../../src/core/search/embed/ngrams.ts';
import { createLog, type LogLevel } from '../../../src/platform/telemetry/log.ts';

export const silent = createLog('silent');

/** A log whose warnings and errors can be counted. */
export function recordingLog(level: LogLevel = 'warn') {
  const lines: { msg?: string }[] = [];
  const log = createLog(level, { write: line => void lines.push(JSON.parse(line)) });
  return { log, messages: () => lines.map(line => line.msg), text: () => JSON.stringify(lines) };
}

export const settableClock = (now = Date.parse('2026-11-01T00:00:00Z')) => ({
  time: now,
  now() {
    return this.time;
  },
});

export const caller: Caller = {
  tenantId: 'local',
  keyId: 'key',
  scopes: new Set(SCOPES),
  requestId: 'req_1',
  signal: new AbortController().signal,
};

export const entry = (id: string, description: string, tools: Record<string, string> = {}): Entry => ({
  id,
  name: id,
  description,
  remote_url: `https://${id}.example.com/mcp`,
  tools: Object.entries(tools).map(([name, text]) => ({
    name,
    description: text,
    input_schema: { type: 'object' },
  })),
});

export const server = (id: string, description: string, tools: Record<string, string> = {}): Server => ({
  id,
  name: id,
  description,
  remoteUrl: `https://${id}.example.com/mcp`,
  tools: entry(id, description, tools).tools ?? [],
  auth: { kind: 'unknown' },
  categories: [],
  origin: 'operator',
  active: true,
});

/** A catalogue whose servers an index may read, with every change of the index that takes effect. */
export function catalogueDouble() {
  const servers = new Map<string, Server>();
  return {
    servers,
    readServers: (ids: readonly string[]) => Promise.resolve(ids.flatMap(id => servers.get(id) ?? [])),
    follow<Index extends SearchIndex>(index: Index): Index {
      const prepare = index.prepare.bind(index);
      index.prepare = async (change, ...rest) => {
        const takeEffect = await prepare(change, ...rest);
        return () => {
          for (const id of change.removed) servers.delete(id);
          for (const one of change.upserted) servers.set(one.id, one);
          return takeEffect();
        };
      };
      return index;
    },
  };
}

/** The n-gram embedder, counting texts, failing and waiting on command. */
export function controlledEmbedder(more: Pick<Embedder, 'words'> = {}) {
  const ngrams = createNgramEmbedder();
  const control = {
    embedded: [] as string[],
    failing: false,
    gate: Promise.resolve(),
    embedder: {
      ...ngrams,
      ...more,
      async embed(passages: readonly Passage[], purpose: EmbeddingPurpose) {
        const texts = passages.map(wordsOf);
        await control.gate;
        if (control.failing) throw new Error('the embedder is down');
        control.embedded.push(...texts);
        return ngrams.embed(texts, purpose);
      },
    } satisfies Embedder,
  };
  return control;
}

/** The servers as the whole catalogue after a change. */
export const wholeOf = (servers: readonly Server[]): WholeCatalogue => ({
  parts: servers.reduce((sum, { tools }) => sum + 1 + tools.length, 0),
  async *servers() {
    yield* servers;
    await Promise.resolve();
  },
});
