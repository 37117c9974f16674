import { setTimeout } from 'node:timers/promises';
import { Meilisearch, MeilisearchApiError, type MultiSearchQuery, type Settings } from 'meilisearch';
import { z } from 'zod';
import type { EngineDocument } from './engine-document.ts';

/** Leaves time for an answer from what is left, within a second in all. */
const SEARCH_TIMEOUT_MS = 700;
const REQUEST_TIMEOUT_MS = 15_000;
/** An engine that works off a queue longer than this counts as unavailable; its tasks go on. */
const TASK_TIMEOUT_MS = 600_000;
const FIRST_POLL_MS = 20;
const LAST_POLL_MS = 500;
/** Documents a page of a listing. */
const PAGE = 1_000;

/** What went wrong with Meilisearch; the message says all there is to know. */
export abstract class EngineError extends Error {}

/** Meilisearch cannot be reached, is too slow, or answers what its API does not: worth another try later. */
class EngineUnavailable extends EngineError {
  override readonly name = 'EngineUnavailable';
}

/** Meilisearch does not take the key, or not for this: mended from outside, as an engine that is down is. */
export class KeyRefused extends EngineUnavailable {}

/** Meilisearch refused a request, or a task of it failed. The message is the engine's own. */
export class EngineRefused extends EngineError {
  override readonly name = 'EngineRefused';
}

export interface EngineAddress {
  readonly url: string;
  readonly apiKey?: string | undefined;
  /** Default 700. */
  readonly searchTimeoutMs?: number;
}

/** What a search asks of one list; see `Engine.search`. */
export type EngineQuery = Omit<MultiSearchQuery, 'indexUid'>;

const taskSchema = z.object({
  type: z.string().optional(),
  status: z.enum(['enqueued', 'processing', 'succeeded', 'failed', 'canceled']),
  error: z.object({ message: z.string(), code: z.string().optional() }).nullish(),
});
type Task = z.infer<typeof taskSchema>;
const enqueuedSchema = z.object({ taskUid: z.int().nonnegative() });
const hitsSchema = z.object({
  results: z.array(z.object({ hits: z.array(z.object({ server: z.string() })) })),
});
const documentsSchema = z.object({
  // What others wrote may have any id, and no hash: such a document is listed too, so that it can be deleted.
  results: z.array(
    z.object({ id: z.union([z.string(), z.number()]).transform(String), hash: z.string().catch('') }),
  ),
  total: z.int().nonnegative(),
});
const indexesSchema = z.object({
  results: z.array(z.object({ uid: z.string(), updatedAt: z.coerce.date() })),
});

/**
 * One Meilisearch server, as far as this program uses it. Every method checks what it is answered, and rejects with
 * `EngineUnavailable` (of which `KeyRefused` is one) or `EngineRefused`, nothing else. Changes resolve to the uid of their task.
 */
export class Engine {
  readonly #searching: Meilisearch;
  readonly #client: Meilisearch;
  readonly #stopped = new AbortController();

  constructor({ url, apiKey, searchTimeoutMs = SEARCH_TIMEOUT_MS }: EngineAddress) {
    const shared = {
      host: url,
      // The address is the operator's: nobody else gets to say where keys and catalogue go.
      requestInit: { redirect: 'error' },
      ...(apiKey === undefined ? {} : { apiKey }),
    } as const;
    this.#searching = new Meilisearch({ ...shared, timeout: searchTimeoutMs });
    this.#client = new Meilisearch({ ...shared, timeout: REQUEST_TIMEOUT_MS });
  }

  /** The servers of each query's hits, best first. */
  async search(indexUid: string, queries: readonly EngineQuery[]): Promise<string[][]> {
    const { results } = await asked(
      this.#searching.multiSearch({ queries: queries.map(query => ({ ...query, indexUid })) }),
      hitsSchema,
    );
    if (results.length !== queries.length)
      throw new EngineUnavailable(`Meilisearch gave ${results.length} answers to ${queries.length} queries`);
    return results.map(({ hits }) => hits.map(({ server }) => server));
  }

  /** The hash of each document by its id; undefined when there is no such index. */
  async documentHashes(indexUid: string): Promise<Map<string, string> | undefined> {
    const hashes = new Map<string, string>();
    for (let offset = 0; ; offset += PAGE) {
      const page = this.#client
        .index(indexUid)
        .getDocuments({ fields: ['id', 'hash'], limit: PAGE, offset })
        .catch(absent);
      if ((await asked(page, z.unknown())) === undefined) return undefined;
      const { results, total } = await asked(page, documentsSchema);
      for (const { id, hash } of results) hashes.set(id, hash);
      if (results.length === 0 || offset + PAGE >= total) return hashes;
    }
  }

  /** How many documents the index has; 0 when there is none. */
  async documentCount(indexUid: string): Promise<number> {
    const page = this.#client
      .index(indexUid)
      .getDocuments({ fields: ['id'], limit: 1 })
      .catch(absent);
    const answer = await asked(page, z.object({ total: z.int().nonnegative() }).optional());
    return answer?.total ?? 0;
  }

  /** Indexes this key may see. */
  async indexes(): Promise<{ uid: string; updatedAt: Date }[]> {
    return (await asked(this.#client.getRawIndexes({ limit: PAGE }), indexesSchema)).results;
  }

  createIndex(uid: string): Promise<number> {
    return enqueued(this.#client.createIndex(uid, { primaryKey: 'id' }));
  }

  updateSettings(uid: string, settings: Settings): Promise<number> {
    return enqueued(this.#client.index(uid).updateSettings(settings));
  }

  deleteIndex(uid: string): Promise<number> {
    return enqueued(this.#client.deleteIndex(uid));
  }

  addDocuments(uid: string, documents: readonly EngineDocument[]): Promise<number> {
    return enqueued(this.#client.index<EngineDocument>(uid).addDocuments([...documents]));
  }

  deleteDocuments(uid: string, ids: readonly string[]): Promise<number> {
    return enqueued(this.#client.index(uid).deleteDocuments([...ids]));
  }

  /** Both must exist. The task belongs to no index, and so is not shown to a key for some of them: `succeeded` cannot follow it. */
  async swapIndexes(one: string, other: string): Promise<void> {
    await enqueued(this.#client.swapIndexes([{ indexes: [one, other], rename: false }]));
  }

  /**
   * Resolves when what the tasks are to bring about is so; another process may have done the same first.
   * @throws EngineRefused with the engine's reason when one has not succeeded.
   */
  async succeeded(tasks: readonly number[]): Promise<void> {
    for (const uid of tasks) {
      const task = await this.#ended(uid);
      const { status, error } = task;
      if (status !== 'succeeded' && !isDoneByAnother(task))
        throw new EngineRefused(`Meilisearch task ${uid} ${status}: ${error?.message ?? 'no reason given'}`);
    }
  }

  /** Ends what waits for a task. */
  close(): void {
    this.#stopped.abort();
  }

  async #ended(uid: number): Promise<Task> {
    const giveUpAt = performance.now() + TASK_TIMEOUT_MS;
    for (let pause = FIRST_POLL_MS; ; pause = Math.min(2 * pause, LAST_POLL_MS)) {
      const task = await asked(this.#client.tasks.getTask(uid), taskSchema);
      if (task.status !== 'enqueued' && task.status !== 'processing') return task;
      if (performance.now() > giveUpAt)
        throw new EngineUnavailable(
          `Meilisearch task ${uid} has not ended for ${TASK_TIMEOUT_MS / 60_000} minutes`,
        );
      await setTimeout(pause, undefined, { signal: this.#stopped.signal }).catch(() => {
        throw new EngineUnavailable('closing');
      });
    }
  }
}

const isDoneByAnother = ({ type, error }: Task): boolean =>
  (type === 'indexCreation' && error?.code === 'index_already_exists') ||
  (type === 'indexDeletion' && error?.code === 'index_not_found');

const enqueued = async (task: Promise<unknown>): Promise<number> =>
  (await asked(task, enqueuedSchema)).taskUid;

/** Checks the form of an answer, and sorts errors into the two kinds. */
async function asked<T>(answer: Promise<unknown>, schema: z.ZodType<T>): Promise<T> {
  let value: unknown;
  try {
    value = await answer;
  } catch (error) {
    throw sorted(error);
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const { path, message } = parsed.error.issues[0] ?? { path: [], message: 'unknown' };
  throw new EngineUnavailable(`Meilisearch's answer is none of its API: ${path.join('.')}: ${message}`);
}

/** Without its `code`, an error came from something in front of the engine. */
function sorted(error: unknown): Error {
  if (
    error instanceof MeilisearchApiError &&
    error.cause?.code !== undefined &&
    isRefusal(error.response.status)
  )
    return new EngineRefused(`Meilisearch: ${error.cause.message}`);
  const { message } = rootOf(error);
  if (error instanceof MeilisearchApiError && [401, 403].includes(error.response.status))
    return new KeyRefused(`Meilisearch: ${message}`);
  return new EngineUnavailable(`Meilisearch: ${message}`);
}

const isRefusal = (status: number) => status >= 400 && status < 500 && ![401, 403, 408, 429].includes(status);

/** The innermost cause says most: `connect ECONNREFUSED …` instead of `fetch failed`. */
function rootOf(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  return error.cause instanceof Error ? rootOf(error.cause) : error;
}

function absent(error: unknown): undefined {
  if (error instanceof MeilisearchApiError && error.cause?.code === 'index_not_found') return undefined;
  throw error;
}
