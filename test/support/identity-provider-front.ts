import {
  request,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type RequestListener,
  type ServerResponse,
} from 'node:http';
import {
  spoil,
  type FaultInjection,
  type FaultyEndpoint,
  type SigningKey,
} from './identity-provider-faults.ts';

/** Requests that have come in so far, whatever became of them. */
export interface Hits {
  readonly token: Record<string, number> & Record<'authorization_code' | 'refresh_token', number>;
  revocation: number;
  discovery: number;
  jwks: number;
}

interface Answer {
  readonly status: number;
  readonly headers: OutgoingHttpHeaders;
  readonly body: Buffer;
}

const ENDPOINTS: Readonly<Record<string, FaultyEndpoint>> = {
  '/token': 'token',
  '/token/revocation': 'revocation',
  '/.well-known/openid-configuration': 'discovery',
  '/jwks': 'jwks',
};
const SECRETS_SENT = ['code', 'code_verifier', 'refresh_token', 'token'];
const SECRETS_ANSWERED = ['access_token', 'refresh_token', 'id_token'];
const JSON_TYPE = 'application/json';

/**
 * What clients connect to: passes every request on to the provider, which listens behind it, counts it, remembers the secrets
 * that go by and works the faults in. Between two sockets, because a middleware added to oidc-provider after `callback()` has
 * no effect, and because a fault there would not be what a client sees on the wire.
 */
export class Front {
  readonly hits: Hits = {
    token: { authorization_code: 0, refresh_token: 0 },
    revocation: 0,
    discovery: 0,
    jwks: 0,
  };
  /** Every code, code verifier, access, refresh and id token that went by, spoilt ones too. */
  readonly secretsSeen = new Set<string>();
  /** The answers that are repeated. */
  readonly #answered = new Map<string, Answer>();
  readonly #faults: FaultInjection;
  readonly #signingKey: SigningKey;
  readonly #providerPort: () => number;

  constructor(faults: FaultInjection, signingKey: SigningKey, providerPort: () => number) {
    this.#faults = faults;
    this.#signingKey = signingKey;
    this.#providerPort = providerPort;
  }

  readonly listener: RequestListener = (incoming, outgoing) => {
    // A client may hang up at any point, and closing cuts what is under way: neither is this server's failure.
    this.#serve(incoming, outgoing).catch(() => outgoing.destroy());
  };

  async #serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const endpoint = ENDPOINTS[new URL(incoming.url ?? '/', 'http://front').pathname];
    const body = await readAll(incoming);
    const form = new URLSearchParams(body.toString());
    this.#remember(SECRETS_SENT.map(name => form.get(name)));
    if (endpoint) this.#count(endpoint, form);
    const answer = await (endpoint ? this.#faulty(endpoint, incoming, body) : this.#forward(incoming, body));
    if (!answer) return;
    this.#rememberAnswer(answer);
    outgoing.writeHead(answer.status, answer.headers);
    outgoing.end(answer.body);
  }

  /** The endpoint's answer with its faults; none when it hangs. */
  async #faulty(
    endpoint: FaultyEndpoint,
    incoming: IncomingMessage,
    body: Buffer,
  ): Promise<Answer | undefined> {
    await this.#faults.pass(endpoint, 'before');
    const faults = this.#faults.faults[endpoint];
    if (faults.hang) return undefined;
    if (faults.status !== undefined) return answerWith(faults.status, JSON_TYPE, '{"error":"server_error"}');
    if (faults.html)
      return answerWith(200, 'text/html', '<!doctype html><title>Welcome to our Wi-Fi</title>');
    const key = `${endpoint} ${body.toString()}`;
    const answer = (faults.repeats && this.#answered.get(key)) || (await this.#forward(incoming, body));
    if (faults.repeats) this.#answered.set(key, answer);
    this.#rememberAnswer(answer);
    await this.#faults.pass(endpoint, 'after');
    if (answer.status !== 200) return answer;
    const spoilt = Buffer.from(await spoil(answer.body.toString(), faults, this.#signingKey));
    return { ...answer, headers: { ...answer.headers, 'content-length': spoilt.length }, body: spoilt };
  }

  #count(endpoint: FaultyEndpoint, form: URLSearchParams): void {
    if (endpoint !== 'token') {
      this.hits[endpoint]++;
      return;
    }
    const grantType = form.get('grant_type') ?? 'none';
    this.hits.token[grantType] = (this.hits.token[grantType] ?? 0) + 1;
  }

  #forward({ method, url, headers }: IncomingMessage, body: Buffer): Promise<Answer> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    // The Host header stays as it came, so that the provider builds its links for the address the client knows.
    const onward = request(
      { host: '127.0.0.1', port: this.#providerPort(), method, path: url, headers, agent: false },
      response =>
        void readAll(response).then(
          answered =>
            resolve({
              status: response.statusCode ?? 502,
              headers: endToEnd(response.headers),
              body: answered,
            }),
          reject,
        ),
    );
    onward.once('error', reject);
    onward.end(body);
    return promise;
  }

  #rememberAnswer({ headers, body }: Answer): void {
    if (typeof headers.location === 'string')
      this.#remember([URL.parse(headers.location)?.searchParams.get('code')]);
    if (!String(headers['content-type']).startsWith(JSON_TYPE)) return;
    const text = body.toString();
    // By pattern: a truncated answer is no JSON, but the tokens in it have been seen all the same.
    for (const name of SECRETS_ANSWERED) this.#remember([new RegExp(`"${name}":"([^"]+)"`).exec(text)?.[1]]);
  }

  #remember(secrets: readonly (string | null | undefined)[]): void {
    for (const secret of secrets) if (secret) this.secretsSeen.add(secret);
  }
}

const answerWith = (status: number, type: string, text: string): Answer => ({
  status,
  headers: { 'content-type': type },
  body: Buffer.from(text),
});

/** The headers without those that belong to one connection. */
function endToEnd({
  connection: _1,
  'keep-alive': _2,
  'transfer-encoding': _3,
  ...rest
}: IncomingHttpHeaders) {
  return rest;
}

async function readAll(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}
