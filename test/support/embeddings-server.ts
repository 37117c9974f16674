import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { closeNow } from './close-now.ts';

export interface EmbeddingRequest {
  readonly path: string;
  readonly authorization: string | undefined;
  readonly model: string;
  readonly input: readonly string[];
  readonly encoding: string | undefined;
}

/** Takes over a request: answers it, or leaves it open for ever. */
export type Fault = (response: ServerResponse, request: EmbeddingRequest, good: () => unknown) => void;

export interface EmbeddingsServer extends AsyncDisposable, Model {
  readonly baseUrl: string;
  readonly requests: EmbeddingRequest[];
  /** Texts embedded in good answers, but for the probe. */
  readonly embedded: string[];
  /** What happens to requests from now on; undefined: good answers. */
  fault: Fault | undefined;
  /** The model behind the name: another number gives vectors that mean something else. */
  model: number;
  dimensions: number;
  /** Resolves once a request that fulfils `wanted` has come, from now on. */
  next(wanted?: (request: EmbeddingRequest) => boolean): Promise<EmbeddingRequest>;
}

const isProbeText = (text: string) => text === 'Does the embedding API respond?';
/** Whether the request only finds out if the API answers. */
export const isProbe = ({ input }: EmbeddingRequest) => input.every(isProbeText);
/** What is asked for besides the probe. */
const textsOf = ({ input }: Pick<EmbeddingRequest, 'input'>) => input.filter(text => !isProbeText(text));

/** A server on loopback that speaks OpenAI's embeddings API, with vectors of words, and fails on command. */
export async function startEmbeddingsServer(): Promise<EmbeddingsServer> {
  const waiting: {
    wanted: (request: EmbeddingRequest) => boolean;
    resolve: (request: EmbeddingRequest) => void;
  }[] = [];
  const http = createServer((message, response) => {
    void answer(message, response);
  });
  const answer = async (message: IncomingMessage, response: ServerResponse) => {
    let text = '';
    for await (const chunk of message) text += String(chunk);
    const { model, input, encoding_format } = JSON.parse(text);
    const request: EmbeddingRequest = {
      path: message.url ?? '',
      authorization: message.headers.authorization,
      model,
      input,
      encoding: encoding_format,
    };
    server.requests.push(request);
    const good = () => {
      server.embedded.push(...textsOf(request));
      return answerTo(request, server);
    };
    if (server.fault) server.fault(response, request, good);
    else sendJson(response, 200, good());
    for (const one of waiting.filter(({ wanted }) => wanted(request))) {
      waiting.splice(waiting.indexOf(one), 1);
      one.resolve(request);
    }
  };
  http.on('connection', socket => socket.on('error', () => {}));
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const server: EmbeddingsServer = {
    baseUrl: `http://127.0.0.1:${(http.address() as AddressInfo).port}/v1`,
    requests: [],
    embedded: [],
    fault: undefined,
    model: 1,
    dimensions: 384,
    next: (wanted = () => true) => new Promise(resolve => waiting.push({ wanted, resolve })),
    [Symbol.asyncDispose]: () => closeNow(http),
  };
  return server;
}

interface Model {
  readonly model: number;
  readonly dimensions: number;
}

/** A vector of unit length that is close to those of texts with the same words, in the same model. */
export function vectorOf(text: string, { model, dimensions }: Model): Float32Array {
  const vector = new Float32Array(dimensions);
  for (const word of text.toLowerCase().match(/[a-z0-9]+/g) ?? ['']) {
    let hash = model * 7919;
    for (const letter of word) hash = (Math.imul(hash, 31) + letter.charCodeAt(0)) >>> 0;
    for (let at = 0; at < 8; at++) {
      hash = (Math.imul(hash, 1_664_525) + 1_013_904_223) >>> 0;
      const place = (hash >>> 8) % dimensions;
      vector[place] = (vector[place] ?? 0) + (hash & 128 ? 1 : -1);
    }
  }
  const length = Math.hypot(...vector);
  return vector.map(component => component / length);
}

/** Base64 where it is asked for, in an order of its own, with an `index` each. */
function answerTo(request: EmbeddingRequest, server: Model) {
  const data = request.input.map((text, index) => {
    const vector = vectorOf(text, server);
    const embedding =
      request.encoding === 'base64' ? Buffer.from(vector.buffer).toString('base64') : [...vector];
    return { object: 'embedding', index, embedding };
  });
  const tokens = request.input.reduce((sum, text) => sum + Math.ceil(text.length / 4), 0);
  return {
    object: 'list',
    model: request.model,
    data: data.toReversed(),
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  };
}

export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(typeof body === 'string' ? body : JSON.stringify(body));
}

const refusal = (message: string, code = 'some_code') => ({ error: { message, type: 'error', code } });

export const refuse =
  (status: number, message = 'no', headers: Record<string, string> = {}, code?: string): Fault =>
  response =>
    sendJson(response, status, refusal(message, code), headers);

export const hang: Fault = () => {};

/** Answers well, but with something changed in its JSON. */
export const twisted =
  (twist: (answer: any) => unknown): Fault =>
  (response, _request, good) =>
    sendJson(response, 200, twist(good()));

/** The connection ends in the middle of the answer. */
export const cut: Fault = (response, _request, good) => {
  const body = JSON.stringify(good());
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': String(body.length) });
  response.write(body.slice(0, 20), () => response.destroy());
};

/** The next few requests only. */
export function times(server: EmbeddingsServer, count: number, fault: Fault): Fault {
  let left = count;
  return (response, request, good) => {
    if (--left <= 0) server.fault = undefined;
    fault(response, request, good);
  };
}
