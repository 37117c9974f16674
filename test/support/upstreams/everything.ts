import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { refusedPort } from './http.ts';

export interface Everything extends AsyncDisposable {
  readonly url: string;
  /** Ends it and starts it anew on the same port: it knows no session any more. */
  restart(): Promise<void>;
}

/**
 * The official reference server (2025-11-25, stateful, SSE answers; or the old HTTP+SSE) as a child process. It cannot say which port it got, so
 * a free one is looked for and passed; should another process take it in between, the next one is tried.
 */
export async function startEverything(
  transport: 'streamableHttp' | 'sse' = 'streamableHttp',
): Promise<Everything> {
  for (let attempt = 0; attempt < 5; attempt++) {
    const port = await refusedPort();
    let child = spawnServer(port, transport);
    if (!(await isUp(child))) continue;
    return {
      url: `http://127.0.0.1:${port}/${transport === 'sse' ? 'sse' : 'mcp'}`,
      async restart() {
        await end(child);
        child = spawnServer(port, transport);
        if (!(await isUp(child))) throw new Error('server-everything did not come up again');
      },
      [Symbol.asyncDispose]: () => end(child),
    };
  }
  throw new Error('server-everything found no free port');
}

function spawnServer(port: number, transport: string): ChildProcess {
  const program = fileURLToPath(
    new URL('../../../node_modules/@modelcontextprotocol/server-everything/dist/index.js', import.meta.url),
  );
  const preload = new URL('../../../scripts/loopback-only.js', import.meta.url).href;
  return spawn(process.execPath, ['--import', preload, program, transport], {
    env: { ...process.env, PORT: String(port) },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
}

async function end(child: ChildProcess): Promise<void> {
  const gone = new Promise(resolve => child.once('close', resolve));
  child.kill('SIGKILL');
  await gone;
}

const isUp = (child: ChildProcess) =>
  new Promise<boolean>((resolve, reject) => {
    let stderr = '';
    child.once('error', reject);
    child.once('exit', () => resolve(false));
    child.stderr?.on('data', (chunk: Buffer) => {
      stderr += chunk.toString();
      if (/(listening|running) on port/.test(stderr)) resolve(true);
    });
  });
