import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { Agent, request as send } from 'node:http';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { text as readText } from 'node:stream/consumers';
import { run, serve, temporaryFolder, type Program } from '../test/support/program.ts';

interface UpstreamState {
  readonly calls: number;
  readonly abandoned: number;
  readonly sessions: number;
  readonly openSockets: number;
  readonly openSessions: number;
}

export interface Process extends AsyncDisposable {
  /** Where it listens, which it prints as its first line. */
  readonly origin: string;
  readonly pid: number;
}

export interface Upstream extends Process {
  state(): Promise<UpstreamState>;
}

/** A script as a process of its own, which ends when its standard input does. */
export function startProcess(file: string, ...args: readonly string[]): Promise<Process> {
  return startProcessWith({}, file, ...args);
}

/** The same, with more in its environment. */
export async function startProcessWith(
  env: Readonly<Record<string, string>>,
  file: string,
  ...args: readonly string[]
): Promise<Process> {
  const child = spawn(process.execPath, [path.resolve(file), ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
  });
  const exited = new Promise(resolve => child.once('exit', resolve));
  const listening = once(createInterface({ input: child.stdout }), 'line') as Promise<[string]>;
  const died = exited.then(code => Promise.reject(new Error(`${file} ended with ${String(code)}`)));
  const [origin] = await Promise.race([listening, died]);
  died.catch(() => {});
  return {
    origin,
    pid: child.pid ?? 0,
    async [Symbol.asyncDispose]() {
      child.stdin.end();
      await exited;
    },
  };
}

/** `bench/upstream.ts`. */
export async function startUpstream(): Promise<Upstream> {
  const started = await startProcess('bench/upstream.ts');
  return {
    ...started,
    state: async () => (await (await fetch(`${started.origin}/state`)).json()) as UpstreamState,
  };
}

export interface Switchboard extends AsyncDisposable {
  readonly program: Program;
  /** A key of this tenant's, for this user of its where one is named. */
  key(tenant: string, user?: string): Promise<string>;
}

/** The real program on a catalogue of the given servers, without rate limits unless `extra` sets some. */
export async function startProgram(
  servers: Readonly<Record<string, string>>,
  extra: Readonly<Record<string, string>> = {},
  logFile?: string,
): Promise<Switchboard> {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(temporaryFolder());
  const lines = Object.entries(servers).map(([id, url]) => {
    const tools = [{ name: 'echo', description: 'Echoes', input_schema: { type: 'object' } }];
    return JSON.stringify({ id, name: id, description: `The server ${id}.`, remote_url: url, tools });
  });
  const catalogue = path.join(folder.path, 'catalogue.jsonl');
  await writeFile(catalogue, lines.join('\n'));
  const env = {
    SWITCHBOARD_DATA_DIR: path.join(folder.path, 'data'),
    SWITCHBOARD_CATALOGUE: catalogue,
    SWITCHBOARD_RATE_LIMIT: 'off',
    SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
  };
  const program = opened.use(await serve({ ...env, ...extra }, logFile));
  await program.ready();
  const stack = opened.move();
  return {
    program,
    async key(tenant, user) {
      const forUser = user === undefined ? [] : ['--user', user];
      const made = await run(['keys', 'create', '--json', '--tenant', tenant, ...forUser], env);
      if (made.code !== 0) throw new Error(`no key: ${made.stderr}`);
      return (JSON.parse(made.stdout) as { key: string }).key;
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

export interface Reply {
  readonly status: number;
  readonly text: string;
}

/** Posts JSON over kept connections; `abandonAfterMs` closes the connection then, and the reply is nothing if none came before. */
export class Poster {
  readonly #agent = new Agent({ keepAlive: true });

  post(
    url: string,
    key: string,
    body: object,
    { abandonAfterMs, headers = {} }: { abandonAfterMs?: number; headers?: Record<string, string> } = {},
  ): Promise<Reply | undefined> {
    return new Promise((resolve, reject) => {
      let timer: NodeJS.Timeout | undefined;
      const request = send(url, {
        method: 'POST',
        agent: this.#agent,
        headers: {
          'x-api-key': key,
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          ...headers,
        },
      });
      const fail = (error: Error) => {
        clearTimeout(timer);
        if (abandonAfterMs === undefined) reject(error);
        else resolve(undefined);
      };
      request.once('response', response => {
        readText(response).then(text => {
          clearTimeout(timer);
          resolve({ status: response.statusCode ?? 0, text });
        }, fail);
      });
      request.once('error', fail);
      request.end(JSON.stringify(body));
      if (abandonAfterMs !== undefined) timer = setTimeout(() => request.destroy(), abandonAfterMs);
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}
