import type { IncomingHttpHeaders, IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { Holds } from '../holds.ts';

/** One request, as it came. */
export interface Exchange {
  readonly method: string;
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** The members of the form or of the JSON object in the body. */
  readonly fields: Readonly<Record<string, any>>;
}

export interface Answer {
  readonly status: number;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Buffer;
}

/**
 * What an endpoint does instead of its work. `hang`: never answers. `drip`: sends one byte each 100 ms. `endless`: sends a JSON
 * document that does not end, saying that it has `contentLength` bytes if that is given.
 */
export type Fault = Answer | 'hang' | 'drip' | { readonly endless: true; readonly contentLength?: number };

/** Shares of an endless document. */
const CHUNK = 'x'.repeat(16 * 1024);

/** The HTTP side of a scripted server: remembers each request to its endpoints, holds it, or spoils its answer. */
export class Wire<Endpoint extends string> {
  /** Assign to spoil an endpoint; delete to repair it. */
  readonly faults: Partial<Record<Endpoint, Fault>> = {};
  readonly holds = new Holds();
  /** How much of endless documents has been sent. */
  bytesSent = 0;
  readonly #exchanges: { readonly endpoint: Endpoint; readonly exchange: Exchange }[] = [];

  /** The requests to this endpoint, in order. */
  sent(endpoint: Endpoint): Exchange[] {
    return this.#exchanges.filter(one => one.endpoint === endpoint).map(({ exchange }) => exchange);
  }

  /** All requests, in order. */
  all(): Exchange[] {
    return this.#exchanges.map(({ exchange }) => exchange);
  }

  /** Answers one request to the endpoint. */
  async serve(
    endpoint: Endpoint,
    exchange: Exchange,
    response: ServerResponse,
    work: (exchange: Exchange) => Answer | Promise<Answer>,
  ): Promise<void> {
    this.#exchanges.push({ endpoint, exchange });
    await this.holds.pass(endpoint, 'before');
    const fault = this.faults[endpoint];
    if (fault !== undefined) return this.#misbehave(fault, response);
    const answer = await work(exchange);
    await this.holds.pass(endpoint, 'after');
    send(answer, response);
  }

  async #misbehave(fault: Fault, response: ServerResponse): Promise<void> {
    if (fault === 'hang') return;
    if (fault === 'drip') {
      await flow(drip(), response);
    } else if ('endless' in fault) {
      if (fault.contentLength !== undefined) response.setHeader('content-length', fault.contentLength);
      await flow(this.#endless(), response);
    } else send(fault, response);
  }

  *#endless(): Generator<string> {
    yield '{"padding":"';
    for (;;) {
      this.bytesSent += CHUNK.length;
      yield CHUNK;
    }
  }
}

async function* drip(): AsyncGenerator<string> {
  yield '{"padding":"';
  for (;;) {
    await delay(100, undefined, { ref: false });
    yield 'x';
  }
}

/** Until the client has had enough. */
async function flow(source: Iterable<string> | AsyncIterable<string>, response: ServerResponse) {
  response.writeHead(200, { 'content-type': 'application/json' });
  await pipeline(Readable.from(source), response).catch(() => {});
}

function send({ status, headers = {}, body = '' }: Answer, response: ServerResponse): void {
  response.writeHead(status, headers).end(body);
}

export function exchangeOf({ method = '', headers, url = '/' }: IncomingMessage, body: string): Exchange {
  const { pathname, searchParams } = new URL(url, 'http://wire');
  return {
    method,
    path: pathname,
    query: Object.fromEntries(searchParams),
    headers,
    body,
    fields: fieldsOf(body, headers['content-type'] ?? ''),
  };
}

function fieldsOf(body: string, type: string): Record<string, any> {
  if (type.startsWith('application/x-www-form-urlencoded'))
    return Object.fromEntries(new URLSearchParams(body));
  try {
    const parsed: unknown = JSON.parse(body);
    return typeof parsed === 'object' && parsed !== null ? parsed : {};
  } catch {
    return {};
  }
}

export const json = (status: number, body: object, headers: OutgoingHttpHeaders = {}): Answer => ({
  status,
  headers: { 'content-type': 'application/json', 'cache-control': 'no-store', ...headers },
  body: JSON.stringify(body),
});

export const text = (status: number, body: string, headers: OutgoingHttpHeaders = {}): Answer => ({
  status,
  headers: { 'content-type': 'text/plain', ...headers },
  body,
});

export const redirect = (to: string | URL): Answer => ({ status: 302, headers: { location: String(to) } });
