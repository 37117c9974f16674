import { Client } from 'undici';
import type { Config } from '../config/index.ts';
import { hasDatabase } from '../platform/database/database.ts';
import { SocketInUse, isAnswered } from '../platform/exclusive-socket.ts';
import { linesOf } from '../platform/lines.ts';
import { controlSocketOf } from '../stores.ts';
import { startSwitchboard } from '../app.ts';

/** What the server refused, in its own words. */
export class CommandFailed extends Error {
  override readonly name = 'CommandFailed';
  /** From the closed list of errors, where the server said one. */
  readonly code: string | undefined;

  constructor(message: string, code?: string) {
    super(message);
    this.code = code;
  }
}

/** By Ctrl-C. */
class Interrupted extends CommandFailed {
  constructor() {
    super(
      'Stopped. All of it is done or nothing: unless it had just come to its end, nothing was changed.',
      'interrupted',
    );
  }
}

type Body = { readonly json: unknown } | { readonly text: string };

export interface AdminClient extends AsyncDisposable {
  /** Which database the commands work on while no server runs on the data folder; undefined: its server's. */
  readonly alone: 'new' | 'existing' | 'shared' | undefined;
  /** @throws CommandFailed with the server's detail when it answers with an error. */
  request(method: 'GET' | 'POST', path: string, body?: Body): Promise<unknown>;
  /**
   * Posts what is worked on for long, and hears how far it is. The work ends with this process, or with Ctrl-C.
   * @throws CommandFailed like `request`, and when the server ends before it has answered; Interrupted
   */
  work(path: string, body: Body, heard: Hearing): Promise<unknown>;
}

interface Hearing {
  readonly onProgress: (progress: Progress) => void;
  /** How many entries of a registry have been read. */
  readonly onListed?: (entries: number) => void;
  /** A sentence for people. */
  readonly onNotice: (notice: string) => void;
}

export interface Progress {
  readonly done: number;
  readonly of: number;
}

/**
 * Speaks to the running server over its control socket. While none runs, starts everything but the public faces in this
 * process, which holds the data folder's lock meanwhile, so a command works either way.
 * @param mayCreate whether a database is made where there is none
 * @throws CommandFailed where there is none and none may be made: nothing is written then
 */
export async function connectAdmin(
  config: Config,
  { mayCreate }: { readonly mayCreate: boolean },
): Promise<AdminClient> {
  const socketPath = controlSocketOf(config.dataDir);
  await using opened = new AsyncDisposableStack();
  let alone: AdminClient['alone'];
  if (!(await isAnswered(socketPath))) {
    const found = databaseOf(config);
    if (found === 'new' && !mayCreate) throw nothingThere(config);
    try {
      opened
        .use(await startSwitchboard({ ...config, log: { ...config.log, level: 'warn' } }, { listen: false }))
        .indexed.catch(() => {});
      alone = found;
    } catch (error) {
      // A server was started in between: use that one.
      if (!(error instanceof SocketInUse)) throw error;
    }
  }
  const client = new Client('http://localhost', {
    connect: { socketPath },
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  opened.defer(() => client.close());
  const running = opened.move();
  return {
    alone,
    request: (method, path, body) => request(client, method, path, body),
    work: (path, body, heard) => work(client, path, body, heard),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** As the command finds it. */
function databaseOf({ database, dataDir }: Config): NonNullable<AdminClient['alone']> {
  if (database.url !== undefined) return 'shared';
  return hasDatabase(dataDir) ? 'existing' : 'new';
}

/** A command that only reads has most likely been given the wrong folder. */
const nothingThere = ({ dataDir }: Config) =>
  new CommandFailed(
    `There is no database in ${dataDir}, and no server is running on it: nothing to read. Start one with npm start (or npx switchboard), or set SWITCHBOARD_DATA_DIR (or DATABASE_URL) as your server has it.`,
  );

async function request(client: Client, method: 'GET' | 'POST', path: string, body?: Body) {
  const content = body && contentOf(body);
  const response = await client.request({
    method,
    path,
    ...(content === undefined ? {} : { body: content.body, headers: { 'content-type': content.type } }),
  });
  const answer: unknown = await response.body.json();
  if (response.statusCode < 400) return answer;
  throw refusal(answer, `The server answered ${response.statusCode}.`);
}

const contentOf = (body: Body): { body: string; type: string } =>
  'json' in body
    ? { body: JSON.stringify(body.json), type: 'application/json' }
    : { body: body.text, type: 'text/plain; charset=utf-8' };

/** A line of an answer with progress (`api/admin/progress.ts`). */
interface Line {
  readonly progress?: Progress;
  readonly listed?: number;
  readonly notice?: string;
  readonly result?: unknown;
  readonly problem?: unknown;
}

async function work(client: Client, path: string, body: Body, hearing: Hearing): Promise<unknown> {
  const stopping = new AbortController();
  const stop = () => stopping.abort(new Interrupted());
  // Once: a second Ctrl-C ends the process at once.
  process.once('SIGINT', stop);
  try {
    return await answerTo(client, path, body, { ...hearing, signal: stopping.signal });
  } finally {
    process.off('SIGINT', stop);
  }
}

async function answerTo(
  client: Client,
  path: string,
  sent: Body,
  { onProgress, onListed, onNotice, signal }: Hearing & { readonly signal: AbortSignal },
): Promise<unknown> {
  const { body, type } = contentOf(sent);
  const headers = { 'content-type': type, accept: 'application/x-ndjson' };
  const response = await client.request({ method: 'POST', path, body, headers, signal }).catch(lost);
  if (response.statusCode >= 400) {
    throw refusal(await response.body.json(), `The server answered ${response.statusCode}.`);
  }
  try {
    for await (const line of linesOf(response.body)) {
      const { progress, listed, notice, result, problem } = JSON.parse(line) as Line;
      if (progress) onProgress(progress);
      if (listed !== undefined) onListed?.(listed);
      if (notice !== undefined) onNotice(notice);
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
    `The connection to the server was lost before it was done${why}. Run the command again: texts embedded so far are not embedded again.`,
  );
}

function refusal(answer: unknown, otherwise: string): CommandFailed {
  const {
    detail,
    code,
    upstream_error: upstream,
  } = answer as { detail?: string; code?: string; upstream_error?: unknown };
  const message = detail ?? otherwise;
  return new CommandFailed(upstream === undefined ? message : `${message} ${JSON.stringify(upstream)}`, code);
}
