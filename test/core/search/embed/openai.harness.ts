import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import { OpenAiEmbedder } from '../../../../src/core/search/embed/openai.ts';
import type { EmbeddingLimits } from '../../../../src/core/search/embed/openai-api.ts';
import { openDatabase, type OpenDatabase } from '../../../../src/platform/database/database.ts';
import { settings } from '../../../../src/platform/database/settings.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import {
  startEmbeddingsServer,
  vectorOf,
  type EmbeddingsServer,
  type Fault,
} from '../../../support/embeddings-server.ts';
import { recordingLog } from '../support.ts';

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

interface Connected {
  readonly embedder: OpenAiEmbedder;
  readonly metrics: Metrics;
  messages(): (string | undefined)[];
}

interface Options {
  readonly limits?: Partial<EmbeddingLimits>;
  readonly baseUrl?: string;
  readonly model?: string;
}

interface UsedApi {
  server: EmbeddingsServer;
  /** What the server gives now. */
  vector(text: string): Float32Array;
  connect(options?: Options): Promise<Connected>;
  /** Connected while the API worked, and then with a fault. */
  connected(fault?: Fault, limits?: Partial<EmbeddingLimits>): Promise<Connected>;
}

/** A database for the file, and for each test an API that has never answered. */
export function useEmbeddingApi(): UsedApi {
  let database: OpenDatabase;
  const opened: OpenAiEmbedder[] = [];
  const used: UsedApi = {
    server: undefined as unknown as EmbeddingsServer,
    vector: text => vectorOf(text, used.server),
    async connect({ limits = {}, baseUrl = used.server.baseUrl, model = 'a-model' } = {}) {
      const { log, messages } = recordingLog();
      const metrics = new Metrics();
      const config = { baseUrl, apiKey: KEY, model };
      const embedder = await OpenAiEmbedder.connect({
        config,
        db: database.db,
        log,
        metrics,
        limits: { ...QUICK, ...limits },
      });
      opened.push(embedder);
      return { embedder, messages, metrics };
    },
    async connected(fault, limits = {}) {
      const all = await used.connect({ limits });
      used.server.requests.length = 0;
      used.server.fault = fault;
      return all;
    },
  };
  beforeAll(async () => void (database = await openDatabase()));
  afterAll(() => database.close());
  beforeEach(async () => {
    used.server = await startEmbeddingsServer();
    await database.db.delete(settings);
  });
  afterEach(async () => {
    await Promise.all(opened.splice(0).map(embedder => embedder.close()));
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
export const working = (embedder: OpenAiEmbedder) =>
  new Promise<void>(resolve => (embedder.onWorking = resolve));
