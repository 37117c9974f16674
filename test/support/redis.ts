import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { freePort } from './postgres-server.ts';

export const REDIS_PASSWORD = 'password-of-the-test-redis';

export interface RedisServer extends AsyncDisposable {
  readonly url: string;
  /** SIGSTOP: it takes connections and answers nothing. Waits until it has stopped. */
  pause(): Promise<void>;
  resume(): void;
  /** Waits for the end. */
  kill(): Promise<void>;
  /** Again, on the same port, empty. */
  start(): Promise<void>;
}

/** The path of redis-server on this machine, if any. */
export const findRedis = (): string | undefined =>
  [...(process.env['PATH'] ?? '').split(path.delimiter), '/usr/bin', '/usr/local/bin']
    .map(folder => path.join(folder, 'redis-server'))
    .find(file => existsSync(file));

/** A Redis server of its own on loopback, with a password, that writes nothing to disk. */
export async function startRedis(): Promise<RedisServer> {
  const program = findRedis();
  if (program === undefined) throw new Error('no Redis server is installed (apt-get install redis-server)');
  const port = await freePort();
  const settings = { port, bind: '127.0.0.1', save: '', appendonly: 'no', requirepass: REDIS_PASSWORD };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
  let running: ChildProcess | undefined;
  const start = async () => {
    // Ctrl-C must reach this process alone: the rest follows from its end.
    const child = spawn('sh', ['-c', TIED_TO_US, 'sh', program, ...args], {
      cwd: '/',
      detached: true,
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    running = child;
    let printed = '';
    await new Promise<void>((resolve, reject) => {
      child.stdout.on('data', (chunk: Buffer) => {
        printed += chunk.toString();
        if (/Ready to accept connections/.test(printed)) resolve();
      });
      child.stdout.once('end', () => reject(new Error(`Redis did not start:\n${printed}`)));
    });
  };
  const kill = async () => {
    if (!running) return;
    const closed = once(running, 'close');
    running.stdin?.end();
    running = undefined;
    await closed;
  };
  await start();
  return {
    url: `redis://:${REDIS_PASSWORD}@127.0.0.1:${port}/1`,
    pause: async () => {
      const { promise: stopped, resolve } = Promise.withResolvers<void>();
      running?.stdout?.on('data', (chunk: Buffer) => {
        if (chunk.includes('stopped by the test')) resolve();
      });
      running?.stdin?.write('STOP\n');
      await stopped;
    },
    resume: () => void running?.stdin?.write('CONT\n'),
    kill,
    start,
    [Symbol.asyncDispose]: kill,
  };
}

/**
 * Runs its arguments, and sends them the signals that come in as lines. A stop takes effect after kill returned, so it is
 * waited for, where the system tells states, and then acknowledged. When the input ends, so do the arguments, at once.
 */
const TIED_TO_US = `
"$@" &
exec 2>/dev/null
while read -r signal; do
  kill -s "$signal" $!
  if [ "$signal" = STOP ]; then
    while read -r _ _ state _ < /proc/$!/stat && [ "$state" != T ]; do sleep 0.01; done
    echo stopped by the test
  fi
done
kill -s KILL $!
wait $!`;
