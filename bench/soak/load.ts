import { readFileSync } from 'node:fs';
import path from 'node:path';
import { NoAnswer, type Answer, type Balancer } from './balancer.ts';
import type { Families } from './families.ts';
import { ACTING_SERVER, serversOn, type Installation } from './installation.ts';
import type { Life } from './replicas.ts';

export const KINDS = ['search', 'call', 'refresh'] as const;
export type Kind = (typeof KINDS)[number];

/** Half searches, two fifths calls, a tenth refreshes. */
const MIX: readonly Kind[] = [
  ...(['search', 'call', 'search', 'call', 'refresh'] as const),
  ...(['search', 'call', 'search', 'call', 'search'] as const),
];
const TIMEOUT_MS = { search: 10_000, call: 15_000 };
/** Of the queries, those asked again and again; the others are asked once, as no two texts of theirs are the same. */
const POPULAR = 40;

const SERVERS = [...serversOn('steady'), ...serversOn('failing'), ACTING_SERVER];

/** One request as its caller saw it. Times are milliseconds since the load began. */
export interface Operation {
  readonly kind: Kind;
  /** Of a call: the server, and the way in. */
  readonly server: string | undefined;
  readonly door: string;
  /** When it was due, by the schedule: what it took counts from here, also where sending it was late. */
  readonly dueMs: number;
  readonly endedMs: number;
  /** Undefined where it was answered as wished; else the error's code, or what befell the connection. */
  readonly failure: string | undefined;
  readonly detail: string;
  readonly queryLogId: string | undefined;
  readonly life: Life | undefined;
}

type Sent = Pick<Operation, 'server' | 'door'> & { readonly answer: Promise<Answer> };

/** The ways to make a call. */
const DOORS: readonly ((server: string) => readonly [path: string, body: object])[] = [
  server => ['/v1/mcp/tools/call', { server_id: server, name: 'echo', arguments: {} }],
  server => [
    '/v1/mcp/call',
    { server_id: server, method: 'tools/call', params: { name: 'echo', arguments: {} }, id: 1 },
  ],
  server => [
    '/mcp',
    {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: {
        name: 'call_remote_tool',
        arguments: { server_id: server, tool_name: 'echo', arguments: {} },
      },
    },
  ],
];

const turn = <T>(list: readonly T[], number: number): T => {
  const item = list[Math.floor(number) % list.length];
  if (item === undefined) throw new Error('an empty list has no turns');
  return item;
};

const QUERIES = readFileSync(path.join(import.meta.dirname, '../training/answerable.jsonl'), 'utf8')
  .split('\n')
  .filter(line => line !== '')
  .map(line => (JSON.parse(line) as { query: string }).query);

/** What is sent, operation by operation: the same at every run. */
export class Load {
  readonly #balancer: Balancer;
  readonly #families: Families;
  readonly #key: string;
  #sent: Record<Kind, number> = { search: 0, call: 0, refresh: 0 };

  constructor(installation: Installation, balancer: Balancer, families: Families) {
    this.#key = installation.key;
    this.#balancer = balancer;
    this.#families = families;
  }

  /**
   * Sends an operation whenever one is due, `rate` a second, whatever has become of those before; resolves when the last
   * one has ended.
   * @param isOn whether the load is still on, when that much is due
   * @param clock milliseconds since the load began
   */
  async run(rate: number, isOn: (dueMs: number) => boolean, clock: () => number): Promise<Operation[]> {
    const ended: Operation[] = [];
    const underWay: Promise<unknown>[] = [];
    for (let number = 0; ; number++) {
      const dueMs = (number * 1_000) / rate;
      if (!isOn(dueMs)) break;
      const earlyMs = dueMs - clock();
      if (earlyMs > 1) await new Promise(resolve => setTimeout(resolve, earlyMs));
      underWay.push(this.#one(turn(MIX, number), dueMs, clock).then(operation => ended.push(operation)));
    }
    await Promise.all(underWay);
    return ended;
  }

  async #one(kind: Kind, dueMs: number, clock: () => number): Promise<Operation> {
    const { server, door, answer } = this.#send(kind, this.#sent[kind]++);
    const seen = await answer.then(judge, unanswered);
    return { kind, server, door, dueMs, endedMs: clock(), ...seen };
  }

  #send(kind: Kind, number: number): Sent {
    if (kind === 'refresh')
      return { server: undefined, door: '/v1/identity/refresh', answer: this.#families.refresh() };
    if (kind === 'search') {
      const query =
        number % 2 === 0
          ? turn(QUERIES.slice(0, POPULAR), number / 2)
          : `${turn(QUERIES.slice(POPULAR), number / 2)} (${number})`;
      return { server: undefined, door: '/v1/search', answer: this.#post('/v1/search', { query }, kind) };
    }
    const server = turn(SERVERS, number);
    const [at, body] = turn(DOORS, number / SERVERS.length)(server);
    const token =
      server === ACTING_SERVER ? { authorization: `Bearer ${this.#families.accessToken(number)}` } : {};
    return { server, door: at, answer: this.#post(at, body, kind, token) };
  }

  #post(at: string, body: object, kind: 'search' | 'call', headers = {}): Promise<Answer> {
    return this.#balancer.send({
      path: at,
      headers: { 'x-api-key': this.#key, ...headers },
      body,
      timeoutMs: TIMEOUT_MS[kind],
    });
  }
}

/** Where an error's code stands: in problem details, in a JSON-RPC error's data, at the end of a text for agents. */
const CODES = [/"reason":"(\w+)"/, /"code":"(\w+)"/, /\((\w+)(?:, retry after [^)]*)?\)"/];

type Seen = Pick<Operation, 'failure' | 'detail' | 'queryLogId' | 'life'>;

/** The answers that were wished for: found servers, a tool's text, new tokens. */
const WISHED = /"query_log_id":|"ok ok |"refresh_token":/;

function judge({ status, text, life }: Answer): Seen {
  const queryLogId = /"query_log_id":"(\w+)"/.exec(text)?.[1];
  if (status === 200 && WISHED.test(text)) return { failure: undefined, detail: '', queryLogId, life };
  const code = CODES.map(pattern => pattern.exec(text)?.[1]).find(found => found !== undefined);
  return { failure: code ?? `http_${status}`, detail: `${status} ${text.slice(0, 400)}`, queryLogId, life };
}

const unanswered = (error: unknown): Seen =>
  error instanceof NoAnswer
    ? { failure: error.code, detail: error.message, queryLogId: undefined, life: error.life }
    : { failure: 'client_error', detail: String(error), queryLogId: undefined, life: undefined };
