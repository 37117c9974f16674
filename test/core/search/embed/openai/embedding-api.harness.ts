import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import { EmbeddingApi, type RemoteEmbedder } from '../../../../../src/core/search/embed/embedder-openai.ts';
import type { EmbeddingLimits } from '../../../../../src/core/search/embed/openai/limits.ts';
import { settings } from '../../../../../src/platform/database/schema.ts';
import type { OpenDatabase } from '../../../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../../../support/database.ts';
import { Metrics } from '../../../../../src/core/metrics.ts';
import {
  startEmbeddingsServer,
  vectorOf,
  type EmbeddingsServer,
  type Fault,
} from '../../../../support/embeddings-server.ts';
import { recordingLog } from '../../support.ts';

export const KEY = 'sk-a-secret-that-must-not-be-seen';
/** Waits of thousandths of a second; only what must never be waited for in vain is long. */
const QUICK: Partial<EmbeddingLimits> = {
  queryWaitMs: 10_000,
  queryLimitMs: 20_000,
  firstBackOffMs: 1,
  maxBackOffMs: 2,
  firstTrialMs: 1,
  maxTrialMs: 2,
};
export const NO_TRIAL = { firstTrialMs: 3_600_000, maxTrialMs: 3_600_000 };

interface Opened {
  readonly api: EmbeddingApi;
  readonly metrics: Metrics;
  messages(): (string | undefined)[];
}

interface UsedApi {
  database: OpenDatabase;
  server: EmbeddingsServer;
  /** What the server gives now. */
  vector(text: string): Float32Array;
  open(limits?: Partial<EmbeddingLimits>, address?: { baseUrl?: string; model?: string }): Opened;
  /** Connected while the API worked, and then with a fault. */
  connected(
    fault?: Fault,
    limits?: Partial<EmbeddingLimits>,
  ): Promise<Opened & { readonly embedder: RemoteEmbedder }>;
}

/** A database for the file, and for each test an API that knows no model yet. */
export function useEmbeddingApi(): UsedApi {
  const opened: EmbeddingApi[] = [];
  const used: UsedApi = {
    database: undefined as unknown as OpenDatabase,
    server: undefined as unknown as EmbeddingsServer,
    vector: text => vectorOf(text, used.server),
    open(limits = {}, { baseUrl = used.server.baseUrl, model = 'a-model' } = {}) {
      const { log, messages } = recordingLog();
      const metrics = new Metrics();
      const config = { baseUrl, apiKey: KEY, model };
      const { db } = used.database;
      const api = new EmbeddingApi({ config, db, log, metrics, limits: { ...QUICK, ...limits } });
      opened.push(api);
      return { api, messages, metrics };
    },
    async connected(fault, limits) {
      const all = used.open(limits);
      const embedder = await all.api.connect();
      used.server.requests.length = 0;
      used.server.fault = fault;
      return { ...all, embedder };
    },
  };
  beforeAll(async () => void (used.database = await openTestDatabase()));
  afterAll(() => used.database.close());
  beforeEach(async () => {
    used.server = await startEmbeddingsServer();
    await used.database.db.delete(settings);
  });
  afterEach(async () => {
    await Promise.all(opened.splice(0).map(api => api.close()));
    await used.server[Symbol.asyncDispose]();
  });
  return used;
}

export const failing = (answer: Promise<unknown>) =>
  answer.then(
    () => expect.unreachable(),
    (error: unknown) => error,
  );

/** Resolves with the next trial that finds the API working. */
export const working = (api: EmbeddingApi) => new Promise<void>(resolve => (api.onWorking = resolve));
