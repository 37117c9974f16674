import { setTimeout } from 'node:timers/promises';
import { Meilisearch, MeilisearchApiError, type MultiSearchQuery, type Settings } from 'meilisearch';
import { z } from 'zod';

/** Time limit of a search. It leaves time to answer without Meilisearch, within a second in all. */
const SEARCH_TIMEOUT_MS = 700;
const REQUEST_TIMEOUT_MS = 15_000;
/** An engine whose task takes longer counts as unavailable; the task goes on. */
const TASK_TIMEOUT_MS = 600_000;
const FIRST_POLL_MS = 20;
const LAST_POLL_MS = 500;
/** Documents in a page of a listing. */
const PAGE = 1_000;

/** Reports a failure of Meilisearch. Its message says all there is to know. */
export abstract class EngineError extends Error {}

/** Reports that Meilisearch cannot be reached, is too slow, or answers what its API does not: worth another try later. */
class EngineUnavailable extends EngineError {
  override readonly name = 'EngineUnavailable';
}

/** Reports that Meilisearch refuses the key, or that the key lacks a right. An operator can mend it while we run. */
export class KeyRefused extends EngineUnavailable {}

/** Reports that Meilisearch refused a request, or that a task of it failed. The message is the engine's own. */
export class EngineRefused extends EngineError {
  override readonly name = 'EngineRefused';
}

export interface EngineAddress {
  readonly url: string;
  readonly apiKey?: string | undefined;
  /** 700 when absent. */
  readonly searchTimeoutMs?: number;
}

/** The name of the engine's embedder that stands for ours. */
export const EMBEDDER = 'switchboard';

/** A document as the engine keeps it. Several of one server differ in their vectors only. */
export interface EngineDocument {
  readonly id: string;
  readonly server: string;
  /** Hash of all that the server's documents hold: where it differs, they are to be written again. */
  readonly hash: string;
  readonly names: string;
  readonly words: string;
  readonly _vectors: Readonly<Record<typeof EMBEDDER, { embeddings: number[][]; regenerate: false }>>;
}

/** One list that a search asks for; see `Engine.search`. */
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
  // A document of others may have any id, and no hash. It is listed, too, so that it can be deleted.
  results: z.array(
    z.object({ id: z.union([z.string(), z.number()]).transform(String), hash: z.string().catch('') }),
  ),
  total: z.int().nonnegative(),
});
/**
 * Calls one Meilisearch server. Every method checks the answer, and rejects with nothing but `EngineUnavailable` (of which
 * `KeyRefused` is one) and `EngineRefused`. Changes resolve to the uid of their task.
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

  /** Returns the servers of each query's hits, best first. */
  async search(indexUid: string, queries: readonly EngineQuery[]): Promise<string[][]> {
    const { results } = await asked(
      this.#searching.multiSearch({ queries: queries.map(query => ({ ...query, indexUid })) }),
      hitsSchema,
    );
    if (results.length !== queries.length)
      throw new EngineUnavailable(`Meilisearch gave ${results.length} answers to ${queries.length} queries`);
    return results.map(({ hits }) => hits.map(({ server }) => server));
  }

  /** Returns the hash of each document by its id; undefined when there is no such index. */
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

  createIndex(uid: string): Promise<number> {
    return enqueued(this.#client.createIndex(uid, { primaryKey: 'id' }));
  }

  updateSettings(uid: string, settings: Settings): Promise<number> {
    return enqueued(this.#client.index(uid).updateSettings(settings));
  }

  addDocuments(uid: string, documents: readonly EngineDocument[]): Promise<number> {
    return enqueued(this.#client.index<EngineDocument>(uid).addDocuments([...documents]));
  }

  deleteDocuments(uid: string, ids: readonly string[]): Promise<number> {
    return enqueued(this.#client.index(uid).deleteDocuments([...ids]));
  }

  /**
   * Waits for tasks to succeed. A task that another process has done first counts as done.
   * @throws EngineRefused with the engine's reason when one has not succeeded
   */
  async succeeded(tasks: readonly number[]): Promise<void> {
    for (const uid of tasks) {
      const task = await this.#ended(uid);
      const { status, error } = task;
      if (status !== 'succeeded' && !isDoneByAnother(task))
        throw new EngineRefused(`Meilisearch task ${uid} ${status}: ${error?.message ?? 'no reason given'}`);
    }
  }

  /** Ends the waits for tasks. */
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
  type === 'indexCreation' && error?.code === 'index_already_exists';

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
