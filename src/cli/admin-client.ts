import { Client, errors } from 'undici';
import type { Config } from '../config/index.ts';
import { controlSocketOf, hasDatabase } from '../platform/database/data-folder.ts';
import { SocketInUse, isAnswered } from '../platform/server-lifecycle.ts';
import { jsonLine, type Io, type Progress, type ProgressDisplay } from './terminal.ts';

/** A command failed. The message comes from the server if it refused the command. */
export class CommandFailed extends Error {
  override readonly name = 'CommandFailed';
  /** An error code from the closed list, if the server sent one. */
  readonly code: string | undefined;

  constructor(message: string, code?: string) {
    super(message);
    this.code = code;
  }
}

/** The user pressed Ctrl-C. */
class Interrupted extends CommandFailed {
  constructor() {
    super('Cancelled. No changes were made.', 'interrupted');
  }
}

type Method = 'GET' | 'POST' | 'PUT';
type Body = { readonly json: unknown } | { readonly text: string };

export interface AdminClient extends AsyncDisposable {
  /** The database that the command uses while no server is running. Undefined: a server is running. */
  readonly alone: 'new' | 'existing' | 'shared' | undefined;
  /** @throws CommandFailed with the server's detail if it returns an error */
  request(method: Method, path: string, body?: Body): Promise<unknown>;
  /**
   * Posts a long-running request and shows its notices and, on a terminal, its progress. The request ends
   * with this process or on Ctrl-C.
   * @throws CommandFailed like `request`, and if the connection is lost before the result
   * @throws Interrupted
   */
  work(path: string, body: Body, io: Io, display?: ProgressDisplay): Promise<unknown>;
}

/** How long a running server may take to answer at all, before a command is sent. The command itself may take longer. */
const ANSWER_MS = 30_000;

interface ConnectOptions {
  /** Creates a database if there is none. */
  readonly mayCreate: boolean;
  /** For tests that would otherwise wait for long. */
  readonly answerMs?: number;
}

/**
 * Connects to the running server over its control socket. Without one, starts a server in this process without the public API,
 * which holds the data folder's lock.
 * @throws CommandFailed if there is no database and `mayCreate` is false, or if the server does not answer
 */
export async function connectAdmin(
  config: Config,
  { mayCreate, answerMs = ANSWER_MS }: ConnectOptions,
): Promise<AdminClient> {
  const socketPath = controlSocketOf(config.dataDir);
  await using opened = new AsyncDisposableStack();
  let alone: AdminClient['alone'];
  if (!(await isAnswered(socketPath))) {
    const found = databaseOf(config);
    if (found === 'new' && !mayCreate) throw nothingThere(config);
    try {
      const { startSwitchboard } = await import('../app.ts');
      opened
        .use(await startSwitchboard({ ...config, log: { ...config.log, level: 'warn' } }, { listen: false }))
        .indexed.catch(() => {});
      alone = found;
    } catch (error) {
      // A server was started in the meantime: use it.
      if (!(error instanceof SocketInUse)) throw error;
    }
  }
  const client = new Client('http://localhost', {
    connect: { socketPath },
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  opened.defer(() => client.close());
  if (alone === undefined) await requireAnswer(client, config.dataDir, answerMs);
  const running = opened.move();
  return {
    alone,
    request: (method, path, body) => request(client, method, path, body),
    work: (path, body, io, display) => work(client, { path, body, io, display }),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

async function requireAnswer(client: Client, dataDir: string, withinMs: number): Promise<void> {
  try {
    const { body } = await client.request({ method: 'GET', path: '/alive', headersTimeout: withinMs });
    await body.dump();
  } catch (error) {
    if (!(error instanceof errors.HeadersTimeoutError)) throw error;
    throw new CommandFailed(
      `The server on ${dataDir} has not answered for ${withinMs / 1000} s: it hangs, or is still starting. No changes were made. Try again later, or restart the server.`,
      'unavailable',
    );
  }
}

function databaseOf({ database, dataDir }: Config): NonNullable<AdminClient['alone']> {
  if (database.url !== undefined) return 'shared';
  return hasDatabase(dataDir) ? 'existing' : 'new';
}

const nothingThere = ({ dataDir }: Config) =>
  new CommandFailed(
    `There is no database in ${dataDir}, and no server is running on it. Start one with npm start (or npx switchboard), or set SWITCHBOARD_DATA_DIR (or DATABASE_URL) to the same value as your server.`,
  );

async function request(client: Client, method: Method, path: string, body?: Body) {
  const content = body && contentOf(body);
  const response = await client.request({
    method,
    path,
    ...(content === undefined ? {} : { body: content.body, headers: { 'content-type': content.type } }),
  });
  const answer: unknown = await response.body.json();
  if (response.statusCode < 400) return answer;
  throw refusal(answer, `The server responded with HTTP ${response.statusCode}.`);
}

const contentOf = (body: Body): { body: string; type: string } =>
  'json' in body
    ? { body: JSON.stringify(body.json), type: 'application/json' }
    : { body: body.text, type: 'text/plain; charset=utf-8' };

/** A line of a response with progress (`api/admin/progress.ts`). */
interface Line {
  readonly progress?: Progress;
  readonly listed?: number;
  readonly notice?: string;
  readonly result?: unknown;
  readonly problem?: unknown;
}

interface Work {
  readonly path: string;
  readonly body: Body;
  readonly io: Io;
  readonly display: ProgressDisplay | undefined;
}

async function work(client: Client, { path, body, io, display }: Work): Promise<unknown> {
  const stopping = new AbortController();
  const stop = () => stopping.abort(new Interrupted());
  // Handles only the first Ctrl-C, so that a second one ends the process.
  process.once('SIGINT', stop);
  try {
    const content = contentOf(body);
    const headers = { 'content-type': content.type, accept: 'application/x-ndjson' };
    const { signal } = stopping;
    const response = await client
      .request({ method: 'POST', path, body: content.body, headers, signal })
      .catch(lost);
    if (response.statusCode >= 400)
      throw refusal(await response.body.json(), `The server responded with HTTP ${response.statusCode}.`);
    return await resultOf(response.body, io, display);
  } finally {
    process.off('SIGINT', stop);
    display?.end();
  }
}

async function resultOf(
  body: AsyncIterable<Buffer>,
  io: Io,
  display: ProgressDisplay | undefined,
): Promise<unknown> {
  try {
    for await (const line of linesOf(body)) {
      const { progress, listed, notice, result, problem } = JSON.parse(line) as Line;
      if (progress) display?.show(progress);
      if (listed !== undefined) display?.listed(listed);
      if (notice !== undefined) io.complain(notice);
      if (problem !== undefined) throw refusal(problem, 'The server failed.');
      if (result !== undefined) return result;
    }
  } catch (error) {
    if (error instanceof CommandFailed) throw error;
    lost(error);
  }
  return lost();
}

function lost(cause?: unknown): never {
  if (cause instanceof Interrupted) throw cause;
  const why = cause instanceof Error ? ` (${cause.message})` : '';
  throw new CommandFailed(
    `The connection to the server was lost before the command finished${why}. Run the command again; texts embedded so far are kept.`,
  );
}

function refusal(answer: unknown, otherwise: string): CommandFailed {
  const {
    detail,
    code,
    upstream_error: upstream,
  } = answer as { detail?: string; code?: string; upstream_error?: unknown };
  const message = detail ?? otherwise;
  return new CommandFailed(upstream === undefined ? message : `${message} ${jsonLine(upstream)}`, code);
}

const NEWLINE = 0x0a;

/**
 * Yields the lines of a byte stream without their newlines, and returns the text after the last newline.
 * `node:readline` would also split at U+2028 and U+2029, which JSON may contain.
 */
export async function* linesOf(stream: AsyncIterable<Buffer>): AsyncGenerator<string, string> {
  let begun: Buffer[] = [];
  for await (const chunk of stream) {
    let from = 0;
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, from)) {
      yield Buffer.concat([...begun, chunk.subarray(from, at)]).toString('utf8');
      begun = [];
      from = at + 1;
    }
    if (from < chunk.length) begun.push(chunk.subarray(from));
  }
  return Buffer.concat(begun).toString('utf8');
}
