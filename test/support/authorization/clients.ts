import { randomBytes } from 'node:crypto';
import type { Exchange } from './wire.ts';

/** An error of OAuth, with the status that its answer has. */
export class OAuthError extends Error {
  readonly code: string;
  readonly status: number;

  constructor(code: string, description: string, status = 400) {
    super(description);
    this.code = code;
    this.status = status;
  }
}

export interface Client {
  readonly client_id: string;
  readonly client_secret?: string;
  /** Seconds since 1970; 0: never. */
  readonly client_secret_expires_at?: number;
  readonly redirect_uris: readonly string[];
  readonly token_endpoint_auth_method: string;
  readonly registration_access_token?: string;
}

interface Presented {
  readonly method: string;
  readonly id: string | undefined;
  readonly secret: string | undefined;
}

export const secret = (prefix: string): string => `${prefix}_${randomBytes(24).toString('base64url')}`;

/** The clients that an authorization server knows. */
export class Clients {
  readonly known = new Map<string, Client>();
  /** What is found at the URLs of client ID metadata documents, which this machine cannot fetch. */
  readonly documents = new Map<string, unknown>();

  add(client: Client): void {
    this.known.set(client.client_id, client);
  }

  /** @throws OAuthError invalid_client for a client that is neither registered nor has a document. */
  named(id: string | undefined): Client {
    const client = this.known.get(id ?? '') ?? this.#documented(id ?? '');
    if (!client) throw new OAuthError('invalid_client', 'the client is not known', 401);
    return client;
  }

  /** The client of a request to the token or revocation endpoint. @throws OAuthError invalid_client */
  authenticated(exchange: Exchange, refusesBasic: boolean): Client {
    const { method, id, secret: given } = presentedIn(exchange);
    if (method === 'client_secret_basic' && refusesBasic)
      throw new OAuthError('invalid_client', 'HTTP Basic is not supported', 401);
    const client = this.named(id);
    if (client.token_endpoint_auth_method !== method)
      throw new OAuthError(
        'invalid_client',
        `${client.token_endpoint_auth_method} was registered, ${method} was used`,
        401,
      );
    if (client.client_secret !== given) throw new OAuthError('invalid_client', 'wrong secret', 401);
    const { client_secret_expires_at: expiresAt } = client;
    if (expiresAt && expiresAt * 1_000 <= Date.now())
      throw new OAuthError('invalid_client', 'the client secret has expired', 401);
    return client;
  }

  /** A document counts only if it names itself, as the draft requires. */
  #documented(id: string): Client | undefined {
    const document = this.documents.get(id) as Partial<Client> | undefined;
    if (document?.client_id !== id || !Array.isArray(document.redirect_uris)) return undefined;
    return {
      client_id: id,
      redirect_uris: document.redirect_uris,
      token_endpoint_auth_method: document.token_endpoint_auth_method ?? 'none',
    };
  }
}

function presentedIn({ headers, fields }: Exchange): Presented {
  const { authorization = '' } = headers;
  if (!authorization.startsWith('Basic ')) {
    const { client_id: id, client_secret: given } = fields;
    return { method: given === undefined ? 'none' : 'client_secret_post', id, secret: given };
  }
  const [id, given] = Buffer.from(authorization.slice('Basic '.length), 'base64')
    .toString()
    .split(':')
    // RFC 6749, section 2.3.1: both are form-encoded first.
    .map(part => decodeURIComponent(part.replaceAll('+', ' ')));
  return { method: 'client_secret_basic', id, secret: given };
}
