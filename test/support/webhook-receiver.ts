import { createHmac, timingSafeEqual } from 'node:crypto';
import { listen, readBytes } from './upstreams/http.ts';

/** One request that the receiver got. */
export interface Delivery {
  readonly path: string;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: string;
  readonly id: string;
  // Tests look into events freely.
  readonly event: any;
}

/** How it answers: with a status, or not at all. */
type Conduct = number | 'silent' | { readonly location: string };

export interface WebhookReceiver extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly all: readonly Delivery[];
  conduct: Conduct | ((delivery: Delivery) => Conduct);
  /** What a receiver says about an event, which Switchboard need not read. */
  text: string;
  /** Events of this type, each attempt once. */
  of(type: string): Delivery[];
  forget(): void;
  /** Refuses connections, until `resume`. */
  pause(): Promise<void>;
  resume(): Promise<void>;
}

export async function startReceiver(): Promise<WebhookReceiver> {
  const all: Delivery[] = [];
  const listening = await listen((request, response) => {
    void readBytes(request).then(bytes => {
      const body = bytes.toString();
      const headers = request.headers as Record<string, string>;
      const delivery = {
        path: request.url ?? '',
        headers,
        body,
        id: headers['webhook-id'] ?? '',
        event: body === '' ? undefined : JSON.parse(body),
      };
      all.push(delivery);
      const { conduct } = receiver;
      const answer = typeof conduct === 'function' ? conduct(delivery) : conduct;
      if (answer === 'silent') return;
      if (typeof answer === 'number') response.writeHead(answer).end(receiver.text);
      else response.writeHead(307, answer).end();
    });
  });
  const receiver: WebhookReceiver = {
    url: `${listening.origin}/hooks`,
    port: listening.port,
    all,
    conduct: 204,
    text: '',
    of: type => all.filter(({ event }) => event?.type === type),
    forget: () => void all.splice(0),
    pause: () => listening.pause(),
    resume: () => listening.resume(),
    [Symbol.asyncDispose]: () => listening[Symbol.asyncDispose](),
  };
  return receiver;
}

/** The number of signatures, and which of them a secret made: verified as Standard Webhooks 1.0 says, without our own code. */
export function signaturesOf({ headers, id, body }: Delivery, secret: string): boolean[] {
  const [prefix, key] = [secret.slice(0, 6), secret.slice(6)];
  if (prefix !== 'whsec_') throw new Error(`no secret: ${prefix}`);
  const signed = `${id}.${headers['webhook-timestamp']}.${body}`;
  const expected = createHmac('sha256', Buffer.from(key, 'base64')).update(signed).digest();
  return (headers['webhook-signature'] ?? '').split(' ').map(part => {
    const [version, signature = ''] = part.split(',');
    const given = Buffer.from(signature, 'base64');
    return version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected);
  });
}
