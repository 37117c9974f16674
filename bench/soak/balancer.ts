import { Agent, request as send } from 'node:http';
import { text as readText } from 'node:stream/consumers';
import type { Life, Replica } from './replicas.ts';

/** How often each replica is asked whether it is ready, and how long its answer may take. */
const CHECK_EVERY_MS = 500;
const CHECK_TIMEOUT_MS = 2_000;
/** Connections without use are given up before the replica does (docs/operations/deploy.md, "Reverse proxy"). */
const KEEP_ALIVE_MS = 4_000;

export interface Request {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: object;
  /** After this long the caller goes away. */
  readonly timeoutMs: number;
}

export interface Answer {
  readonly status: number;
  readonly text: string;
  /** Who gave it; undefined where there was nobody to ask. */
  readonly life?: Life;
}

/** An attempt without an answer; `code` is the connection's error, or `client_timeout`. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer';
  readonly code: string;
  readonly life: Life;

  constructor(code: string, life: Life) {
    super(`${code} from ${life.name}`);
    this.code = code;
    this.life = life;
  }
}

interface Target {
  readonly replica: Replica;
  /** The life that said last that it is ready. */
  ready: Life | undefined;
}

/**
 * Replicas in turn, as a common balancer has them: it asks `/readyz` twice a second and sends to those that are ready. What it
 * sends goes elsewhere only where it cannot have run: its connection was refused, or the answer is 503 from one that has said
 * that it is stopping. A connection lost in the midst of a request, an error and a time-out are the caller's.
 */
export class Balancer implements Disposable {
  readonly #targets: readonly Target[];
  readonly #agent = new Agent({ keepAlive: true, timeout: KEEP_ALIVE_MS });
  readonly #timer: NodeJS.Timeout;
  #turn = 0;
  /** Requests sent elsewhere, by why. */
  readonly retried: Record<string, number> = {};

  constructor(replicas: readonly Replica[]) {
    this.#targets = replicas.map(replica => ({ replica, ready: replica.life }));
    this.#timer = setInterval(() => {
      for (const target of this.#targets) void this.#check(target);
    }, CHECK_EVERY_MS);
  }

  /** @throws NoAnswer */
  async send(request: Request): Promise<Answer> {
    const tried = new Set<Life>();
    for (;;) {
      const target = this.#next(tried);
      const life = target?.ready;
      if (!target || !life) return { status: 503, text: '{"code":"no_replica"}' };
      tried.add(life);
      const reply = await this.#attempt(life, request);
      if (reply === 'refused') {
        if (target.ready === life) target.ready = undefined;
        this.#count('connection refused');
      } else if (reply.status === 503 && target.ready !== life) this.#count('503 of a stopping replica');
      else return { ...reply, life };
    }
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.#agent.destroy();
  }

  #next(tried: ReadonlySet<Life>): Target | undefined {
    for (let step = 0; step < this.#targets.length; step++) {
      const target = this.#targets[this.#turn++ % this.#targets.length];
      if (target?.ready && !tried.has(target.ready)) return target;
    }
    return undefined;
  }

  async #attempt(life: Life, request: Request): Promise<Reply | 'refused'> {
    try {
      return await post(this.#agent, life.program.url, request);
    } catch (error) {
      const code = codeOf(error);
      if (code === 'ECONNREFUSED') return 'refused';
      throw new NoAnswer(code, life);
    }
  }

  /** Whoever takes too long to answer is busy, not gone: it stays what it was. */
  async #check(target: Target): Promise<void> {
    const { life } = target.replica;
    const state = life ? await readiness(life) : 'away';
    if (state === 'ready' && target.replica.life === life) target.ready = life;
    else if (state === 'away') target.ready = undefined;
  }

  #count(why: string): void {
    this.retried[why] = (this.retried[why] ?? 0) + 1;
  }
}

async function readiness({ program }: Life): Promise<'ready' | 'away' | 'busy'> {
  try {
    const answer = await fetch(`${program.url}/readyz`, { signal: AbortSignal.timeout(CHECK_TIMEOUT_MS) });
    await answer.body?.cancel();
    return answer.ok ? 'ready' : 'away';
  } catch (error) {
    return error instanceof Error && error.name === 'TimeoutError' ? 'busy' : 'away';
  }
}

type Reply = Omit<Answer, 'life'>;

const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error ? String(error.code) : String(error);

/** What a request ends with that its caller has given up. */
const GIVEN_UP = Object.assign(new Error('the caller went away'), { code: 'client_timeout' });

function post(agent: Agent, origin: string, { path, headers, body, timeoutMs }: Request): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const request = send(origin + path, {
      method: 'POST',
      agent,
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...headers,
      },
    });
    const timer = setTimeout(() => {
      reject(GIVEN_UP);
      request.destroy();
    }, timeoutMs);
    const fail = (error: Error) => {
      clearTimeout(timer);
      reject(error);
    };
    request.once('response', response => {
      readText(response).then(text => {
        clearTimeout(timer);
        resolve({ status: response.statusCode ?? 0, text });
      }, fail);
    });
    request.once('error', fail);
    request.end(JSON.stringify(body));
  });
}
