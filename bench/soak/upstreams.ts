import { freePort } from '../../test/support/postgres-server.ts';
import { startProcess, type Process } from '../processes.ts';

/** The ways to speak MCP that `bench/upstream.ts` serves, by the path each has there. */
export const ERAS = ['json', 'sse', 'legacy', 'oldest'] as const;

/** `bench/upstream.ts` on a port of its own, which can fail and come back there. */
export interface FailingUpstream extends AsyncDisposable {
  readonly origin: string;
  /** As by a crash: connections are cut, new ones refused, sessions forgotten. Waits for the end. */
  kill(): Promise<void>;
  start(): Promise<void>;
  /** Takes connections, and answers nothing until `resume`. */
  pause(): void;
  resume(): void;
}

export async function startFailingUpstream(): Promise<FailingUpstream> {
  const port = await freePort();
  let running: Process | undefined;
  const start = async () => void (running = await startProcess('bench/upstream.ts', String(port)));
  const signal = (name: NodeJS.Signals) => {
    if (running) process.kill(running.pid, name);
  };
  const kill = async () => {
    signal('SIGKILL');
    // Its end, which nothing can hold up any more.
    await running?.[Symbol.asyncDispose]();
    running = undefined;
  };
  await start();
  return {
    origin: `http://127.0.0.1:${port}`,
    kill,
    start,
    pause: () => signal('SIGSTOP'),
    resume: () => signal('SIGCONT'),
    [Symbol.asyncDispose]: kill,
  };
}
