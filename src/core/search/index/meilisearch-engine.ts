import { setTimeout } from 'node:timers/promises';
import { Meilisearch, MeilisearchApiError, type MultiSearchQuery, type Settings } from 'meilisearch';
import { z } from 'zod';

/** The timeout of a search, which leaves time to continue without Meilisearch within a second in total. */
const SEARCH_TIMEOUT_MS = 700;
const REQUEST_TIMEOUT_MS = 15_000;
/** An engine whose task takes longer counts as unavailable; the task continues. */
const TASK_TIMEOUT_MS = 600_000;
const FIRST_POLL_MS = 20;
const LAST_POLL_MS = 500;
/** The number of documents per page of a listing. */
const PAGE = 5_000;

/** A failure of Meilisearch. Its message is complete. */
export abstract class EngineError extends Error {}

/** Meilisearch is unreachable, too slow, or returns an unexpected response: worth retrying later. */
class EngineUnavailable extends EngineError {
  override readonly name = 'EngineUnavailable';
}

/** Meilisearch rejected the key, or the key lacks a permission. An operator can fix it at runtime. */
export class KeyRefused extends EngineUnavailable {}

/** Meilisearch rejected a request, or one of its tasks failed. The message is the engine's own. */
export class EngineRefused extends EngineError {
  override readonly name = 'EngineRefused';
}

export interface EngineAddress {
  readonly url: string;
  readonly apiKey?: string | undefined;
  /** Default: 700. */
  readonly searchTimeoutMs?: number;
}

/** The name of the engine's embedder for our vectors. */
export const EMBEDDER = 'switchboard';

/** A document in the engine: one text of a server with its vector. Only the first of a server has its words. */
export interface EngineDocument {
  readonly id: string;
  readonly server: string;
  /** Hash of the content of the server's documents: if it differs, they must be rewritten. */
  readonly hash: string;
  readonly names: string;
  readonly words: string;
  readonly _vectors: Readonly<Record<typeof EMBEDDER, { embeddings: number[][]; regenerate: false }>>;
}

/** A document in a listing; one that is not ours has the hash ''. */
export interface ListedDocument {
  readonly id: string;
  readonly hash: string;
}

/** One list requested by a search; see `Engine.search`. */
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
  // Foreign documents may have any id, and no hash. They are listed too, so that they can be deleted.
  results: z.array(
    z.object({ id: z.union([z.string(), z.number()]).transform(String), hash: z.string().catch('') }),
  ),
  total: z.int().nonnegative(),
});
/**
 * Calls one Meilisearch server. Every method validates the response and rejects only with `EngineUnavailable` (including
 * `KeyRefused`) or `EngineRefused`. Changes resolve to the uid of their task.
 */
export class Engine {
  readonly #searching: Meilisearch;
  readonly #client: Meilisearch;
  readonly #stopped = new AbortController();

  constructor({ url, apiKey, searchTimeoutMs = SEARCH_TIMEOUT_MS }: EngineAddress) {
    const shared = {
      host: url,
      requestInit: {
        // Redirects are not followed: the key and the catalogue go only to the operator's address.
        redirect: 'error',
        // It sends a compressed response in two parts, and without TCP_NODELAY: the second one waits for a delayed ACK (40 ms).
        headers: { 'accept-encoding': 'identity' },
      },
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
      throw new EngineUnavailable(
        `Meilisearch returned ${results.length} results for ${queries.length} queries`,
      );
    return results.map(({ hits }) => hits.map(({ server }) => server));
  }

  /** Passes on the id and hash of all documents, page by page. Resolves to false if there is no such index. */
  async listDocuments(indexUid: string, onPage: (page: readonly ListedDocument[]) => void): Promise<boolean> {
    for (let offset = 0; ; offset += PAGE) {
      const page = this.#client
        .index(indexUid)
        .getDocuments({ fields: ['id', 'hash'], limit: PAGE, offset })
        .catch(absent);
      if ((await asked(page, z.unknown())) === undefined) return false;
      const { results, total } = await asked(page, documentsSchema);
      onPage(results);
      if (results.length === 0 || offset + PAGE >= total) return true;
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
   * Waits for tasks to succeed. A task that another process already did counts as done.
   * @throws EngineRefused with the engine's reason if a task failed
   */
  async succeeded(tasks: readonly number[]): Promise<void> {
    for (const uid of tasks) {
      const task = await this.#ended(uid);
      const { status, error } = task;
      if (status !== 'succeeded' && !isDoneByAnother(task))
        throw new EngineRefused(`Meilisearch task ${uid} ${status}: ${error?.message ?? 'no reason given'}`);
    }
  }

  /** Stops waiting for tasks. */
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
          `Meilisearch task ${uid} has not finished after ${TASK_TIMEOUT_MS / 60_000} minutes`,
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

/** Validates a response and sorts errors into the two kinds. */
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
  throw new EngineUnavailable(`Meilisearch returned an unexpected response: ${path.join('.')}: ${message}`);
}

/** An error without `code` comes from something in front of the engine. */
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

/** Returns the innermost cause, which is the most specific: `connect ECONNREFUSED …` instead of `fetch failed`. */
function rootOf(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  return error.cause instanceof Error ? rootOf(error.cause) : error;
}

function absent(error: unknown): undefined {
  if (error instanceof MeilisearchApiError && error.cause?.code === 'index_not_found') return undefined;
  throw error;
}
