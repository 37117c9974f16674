import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { closeNow } from '../../../support/close-now.ts';

/**
 * The part of Meilisearch's HTTP API that the adapter uses, written from its API reference (v1.50): asynchronous tasks that
 * run in order, document ids and vectors checked as there, errors with their codes. It searches by brute force.
 */

interface StoredDocument {
  readonly id: string;
  readonly server: string;
  readonly hash: string;
  readonly names: string;
  readonly words: string;
  readonly _vectors: Record<string, { embeddings: number[][] }>;
}
interface Index {
  settings: any;
  documents: Map<string, StoredDocument>;
}
interface Task {
  uid: number;
  type: string;
  indexUid: string | null;
  status: 'enqueued' | 'succeeded' | 'failed';
  error: { message: string; code: string } | null;
  run: () => void;
}

class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const noIndex = (uid: string) => new ApiError(404, 'index_not_found', `Index \`${uid}\` not found.`);

export async function startMeilisearchDouble({ apiKey }: { apiKey?: string } = {}) {
  const indexes = new Map<string, Index>();
  const tasks: Task[] = [];
  const requests: { method: string; path: string; body: any; encodings: string }[] = [];
  const hanging: ServerResponse[] = [];
  const control = {
    url: '',
    indexes,
    tasks,
    requests,
    /** How it answers: as it should, never, with 500, with a page of something else, or with JSON of a wrong form. */
    mode: 'right' as 'right' | 'silent' | 'broken' | 'html' | 'nonsense',
    /** Whether the mode is for searches alone. */
    onlySearches: false,
    /** The reason for which a task is to fail. */
    failing: (_task: { type: string; indexUid: string | null }): string | undefined => undefined,
    /** Whether tasks wait. */
    paused: false,
    enqueuedTypes: () => tasks.map(({ type }) => type),
    searches: () => requests.filter(({ path }) => path === '/multi-search'),
    work,
    stop,
    start,
    [Symbol.asyncDispose]: stop,
  };

  function work() {
    for (const task of tasks) {
      if (task.status !== 'enqueued' || control.paused) continue;
      try {
        const reason = control.failing(task);
        if (reason !== undefined) throw new ApiError(400, 'internal', reason);
        task.run();
        task.status = 'succeeded';
      } catch (error) {
        task.status = 'failed';
        task.error = { message: (error as Error).message, code: (error as ApiError).code ?? 'internal' };
      }
    }
  }

  function enqueue(type: string, indexUid: string | null, run: () => void) {
    const task: Task = { uid: tasks.length, type, indexUid, status: 'enqueued', error: null, run };
    tasks.push(task);
    work();
    return { taskUid: task.uid, indexUid, status: 'enqueued', type, enqueuedAt: new Date().toISOString() };
  }

  const indexOf = (uid: string): Index => {
    const index = indexes.get(uid);
    if (!index) throw noIndex(uid);
    return index;
  };

  function check(document: StoredDocument, { settings }: Index) {
    if (!/^[a-zA-Z0-9_-]{1,511}$/.test(document.id))
      throw new ApiError(400, 'invalid_document_id', `Document identifier \`"${document.id}"\` is invalid.`);
    for (const [name, { embeddings }] of Object.entries(document._vectors)) {
      const dimensions = settings.embedders?.[name]?.dimensions;
      if (embeddings.length > 256)
        throw new ApiError(
          400,
          'invalid_vectors',
          `Too many vectors for document with id ${document.id}: found ${embeddings.length}, but limited to 256.`,
        );
      if (embeddings.some(embedding => embedding.length !== dimensions))
        throw new ApiError(
          400,
          'invalid_vector_dimensions',
          `Expected embeddings to contain ${dimensions} numbers.`,
        );
    }
  }

  const routes: [RegExp, (parts: string[], body: any, query: URLSearchParams) => unknown][] = [
    [
      /^POST \/indexes$/,
      (_, { uid }) =>
        enqueue('indexCreation', uid, () => {
          if (indexes.has(uid))
            throw new ApiError(409, 'index_already_exists', `Index \`${uid}\` already exists.`);
          indexes.set(uid, { settings: {}, documents: new Map() });
        }),
    ],
    [
      /^PATCH \/indexes\/([^/]+)\/settings$/,
      ([uid = ''], body) => enqueue('settingsUpdate', uid, () => Object.assign(indexOf(uid).settings, body)),
    ],
    [
      /^POST \/indexes\/([^/]+)\/documents$/,
      ([uid = ''], body: StoredDocument[]) =>
        enqueue('documentAdditionOrUpdate', uid, () => {
          for (const document of body) check(document, indexOf(uid));
          for (const document of body) indexOf(uid).documents.set(document.id, document);
        }),
    ],
    [
      /^POST \/indexes\/([^/]+)\/documents\/delete-batch$/,
      ([uid = ''], body: string[]) =>
        enqueue('documentDeletion', uid, () => {
          for (const id of body) indexOf(uid).documents.delete(id);
        }),
    ],
    [
      /^GET \/indexes\/([^/]+)\/documents$/,
      ([uid = ''], _, query) => {
        const all = [...indexOf(uid).documents.values()];
        const [offset, limit] = [Number(query.get('offset') ?? 0), Number(query.get('limit') ?? 20)];
        const shown = all.slice(offset, offset + limit).map(({ id, hash }) => ({ id, hash }));
        return { results: shown, offset, limit, total: all.length };
      },
    ],
    [
      /^GET \/tasks\/(\d+)$/,
      ([uid]) => {
        const task = tasks[Number(uid)];
        // What belongs to no index is hidden from keys that are for some indexes only.
        if (!task || task.indexUid === null)
          throw new ApiError(404, 'task_not_found', `Task \`${uid}\` not found.`);
        const { run: _, ...shown } = task;
        return shown;
      },
    ],
    [
      /^POST \/multi-search$/,
      (_, { queries }) => ({
        results: queries.map((query: any) => ({ hits: hits(indexOf(query.indexUid), query) })),
      }),
    ],
  ];

  const faults: Record<Exclude<typeof control.mode, 'right'>, (response: ServerResponse) => void> = {
    silent: response => void hanging.push(response),
    broken: response => send(response, 500, { message: 'out of luck', code: 'internal', type: 'internal' }),
    html: response => void response.end('<html>Welcome to nginx!</html>'),
    nonsense: response => send(response, 200, { results: [{ hits: [{ server: 7 }] }] }),
  };

  function route(request: string, body: unknown, query: URLSearchParams): unknown {
    for (const [pattern, handle] of routes) {
      const match = pattern.exec(request);
      if (match) return handle(match.slice(1), body, query);
    }
    throw new ApiError(404, 'not_found', `no route for ${request}`);
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'GET', url = '/', headers } = request;
    const { pathname: path, searchParams } = new URL(url, 'http://double');
    const body: unknown = ['POST', 'PATCH'].includes(method) ? await json(request) : undefined;
    requests.push({ method, path, body, encodings: String(headers['accept-encoding']) });
    const isSearch = path === '/multi-search';
    if (control.mode !== 'right' && (isSearch || !control.onlySearches)) {
      faults[control.mode](response);
      return;
    }
    respond(response, method === 'GET' || isSearch ? 200 : 202, () => {
      if (apiKey !== undefined && headers.authorization !== `Bearer ${apiKey}`)
        throw new ApiError(403, 'invalid_api_key', 'The provided API key is invalid.');
      return route(`${method} ${path}`, body, searchParams);
    });
  }

  let server = createServer((request, response) => void answer(request, response));
  async function start() {
    const port = control.url === '' ? 0 : Number(new URL(control.url).port);
    await new Promise<void>(resolve => server.listen(port, '127.0.0.1', resolve));
    control.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }
  async function stop() {
    for (const response of hanging.splice(0)) response.destroy();
    if (!server.listening) return;
    await closeNow(server);
    server = createServer((request, response) => void answer(request, response));
  }
  await start();
  return control;
}

const send = (response: ServerResponse, status: number, value: unknown): void =>
  void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));

function respond(response: ServerResponse, status: number, value: () => unknown): void {
  try {
    send(response, status, value());
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    send(response, error.status, {
      message: error.message,
      code: error.code,
      type: 'invalid_request',
      link: '',
    });
  }
}

function hits({ documents, settings }: Index, query: any) {
  const score = query.vector ? bySimilarity(query, settings) : byWords(query);
  return [...documents.values()]
    .map(document => ({ server: document.server, score: score(document) }))
    .filter(hit => hit.score > 0)
    .sort((a, b) => b.score - a.score)
    .slice(0, query.limit)
    .map(({ server }) => ({ server }));
}

function bySimilarity({ vector, hybrid }: any, settings: any) {
  if (vector.length !== settings.embedders[hybrid.embedder].dimensions)
    throw new ApiError(400, 'invalid_vector_dimensions', 'wrong dimensions');
  return ({ _vectors }: StoredDocument) =>
    1 +
    Math.max(...(_vectors[hybrid.embedder]?.embeddings ?? []).map(embedding => cosine(vector, embedding)));
}

/** How many of the words, from the first on, are all there. */
const byWords =
  ({ q }: any) =>
  ({ names, words }: StoredDocument) => {
    const known = new Set(`${names} ${words}`.split(' '));
    const missing = (q as string).split(' ').findIndex(word => !known.has(word));
    return missing === -1 ? Infinity : missing;
  };

function cosine(a: number[], b: number[]): number {
  const dot = (x: number[], y: number[]) => x.reduce((sum, value, at) => sum + value * (y[at] ?? 0), 0);
  return dot(a, b) / (Math.sqrt(dot(a, a) * dot(b, b)) || 1);
}
