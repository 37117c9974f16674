import createClient, { type Client } from 'openapi-fetch';
import {
  isProblem,
  isSwitchboardError,
  retryDelayMs,
  SessionFailed,
  unwrap,
  type Session,
} from './errors.ts';
import type { operations, paths } from './openapi.ts';
import { idempotencyKey, UserTokens, type Tokens, type TokenSet } from './tokens.ts';

type Body<Name extends 'search' | 'callTool' | 'listTools' | 'createSession'> =
  operations[Name]['requestBody']['content']['application/json'];

export type SearchRequest = Body<'search'>;
export type ToolCall = Body<'callTool'>;
export type ToolListRequest = Body<'listTools'>;
export type SessionRequest = Body<'createSession'>;

export interface SwitchboardOptions {
  /** The address of Switchboard, such as `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly apiKey: string;
  /** The user of searches and calls, as an identity token or as tokens that renew themselves. */
  readonly user?: string | UserTokens;
  /** Replaces the global `fetch`. */
  readonly fetch?: (request: Request) => Promise<Response>;
}

export interface RequestOptions {
  readonly signal?: AbortSignal;
}

export interface WaitOptions extends RequestOptions {
  /** The time between two polls. Default 1.5 s. */
  readonly intervalMs?: number;
}

export interface ConnectOptions extends WaitOptions {
  /** Sends the user to the address, with a redirect, in a pop-up or in a new tab. */
  readonly open: (authUrl: string, session: Session) => unknown;
}

const POLL_INTERVAL_MS = 1_500;
/** A sign-in that has begun in time may end later than its session expires. */
const LATE_MS = 120_000;
/** A shared refresh has no caller whose signal could end it. */
const TOKEN_TIMEOUT_MS = 30_000;

/** The API of one Switchboard, for one API key. Errors are SwitchboardErrors, or those of `fetch` without a response. */
export class Switchboard {
  /** All endpoints, typed. `unwrap` around a request resolves to its data, or throws its error. */
  readonly api: Client<paths>;
  /** Carries no user: tokens can be refreshed after they have expired. */
  readonly #bare: Client<paths>;
  readonly #options: SwitchboardOptions;

  constructor(options: SwitchboardOptions) {
    const { url, apiKey, fetch = globalThis.fetch } = options;
    const common = {
      baseUrl: url,
      headers: { 'X-API-Key': apiKey },
      // The API has no redirects, and nobody else may get the key.
      redirect: 'error',
    } as const;
    this.#options = options;
    this.#bare = createClient<paths>({ ...common, fetch: request => fetch(request) });
    this.api = createClient<paths>({ ...common, fetch: request => this.#send(request) });
  }

  /** Returns a client for the same API key and this user. */
  as(user: string | UserTokens): Switchboard {
    return new Switchboard({ ...this.#options, user });
  }

  /** Ranks servers and their tools for a request in plain words. */
  search(body: SearchRequest, options: RequestOptions = {}) {
    return unwrap(this.api.POST('/v1/search', { ...options, body }));
  }

  /** Resolves to the tool's result, also if that has `isError`. */
  callTool(body: ToolCall, options: RequestOptions = {}) {
    return unwrap(this.api.POST('/v1/mcp/tools/call', { ...options, body }));
  }

  /** Asks a server for its tools. */
  listTools(body: ToolListRequest, options: RequestOptions = {}) {
    return unwrap(this.api.POST('/v1/mcp/tools/list', { ...options, body }));
  }

  /**
   * Has a user connect an account or enter a key, and waits until that is done.
   * @throws SessionFailed if the user refuses, or does not finish in time
   */
  async connect(body: SessionRequest, options: ConnectOptions): Promise<void> {
    await this.waitFor(await this.#begin(body, options), options);
  }

  /**
   * Has a user sign in with an identity provider. Resolves to the first tokens.
   * @throws SessionFailed if the user refuses, or does not finish in time
   */
  async signIn(
    body: SessionRequest & { readonly provider: string },
    options: ConnectOptions,
  ): Promise<Tokens> {
    const session = await this.#begin(body, options);
    await this.waitFor(session, options).catch((error: unknown) => {
      // The response with the final status got lost. Only a complete session has tokens.
      if (!isSwitchboardError(error, 'session_delivered')) throw error;
    });
    return this.exchange(session.session_id);
  }

  async #begin(body: SessionRequest, { open, signal }: ConnectOptions): Promise<Session> {
    const session = await unwrap(
      this.#bare.POST('/v1/identity/sessions', { body, ...(signal && { signal }) }),
    );
    await open(session.auth_url, session);
    return session;
  }

  /**
   * Polls a session, such as that of a `connection_required` error, until it is complete, also through short outages.
   * @throws SessionFailed if the user refuses, or does not finish in time
   */
  async waitFor(
    { session_id, expires_at }: Pick<Session, 'session_id' | 'expires_at'>,
    { intervalMs = POLL_INTERVAL_MS, signal }: WaitOptions = {},
  ): Promise<void> {
    const request = { params: { path: { session_id } }, ...(signal && { signal }) };
    const endsAtMs = Date.parse(expires_at) + LATE_MS;
    for (;;) {
      let pauseMs = intervalMs;
      try {
        const { status, error } = await unwrap(this.#bare.GET('/v1/identity/sessions/{session_id}', request));
        if (status === 'complete') return;
        if (status === 'error') throw new SessionFailed(error ?? '');
      } catch (error) {
        const delayMs = retryDelayMs(error);
        if (delayMs === undefined || Date.now() > endsAtMs) throw error;
        pauseMs = Math.max(pauseMs, delayMs);
      }
      await pause(pauseMs, signal);
    }
  }

  /** Resolves to the first tokens of a complete session. If the response is lost, repeat this within a minute. */
  exchange(session_id: string): Promise<Tokens> {
    return issued(session_id, request =>
      this.#bare.POST('/v1/identity/token', { ...request, body: { session_id } }),
    );
  }

  /** Resolves to the next tokens. If the response is lost, repeat this within a minute. */
  refresh(refresh_token: string): Promise<Tokens> {
    return issued(refresh_token, request =>
      this.#bare.POST('/v1/identity/refresh', { ...request, body: { refresh_token } }),
    );
  }

  /** Sends a request for the user. If the token is refused, nothing has been done yet, and a renewed one is tried once. */
  async #send(request: Request): Promise<Response> {
    const { user, fetch = globalThis.fetch } = this.#options;
    if (user === undefined) return fetch(request);
    if (typeof user === 'string') return fetch(authorized(request, user));
    const token = await user.accessToken();
    const response = await fetch(authorized(request.clone(), token));
    if (!(await isTokenRefused(response))) return response;
    return fetch(authorized(request, await user.renewed(token)));
  }
}

function authorized(request: Request, token: string): Request {
  request.headers.set('Authorization', `Bearer ${token}`);
  return request;
}

async function isTokenRefused(response: Response): Promise<boolean> {
  if (response.status !== 401) return false;
  const body: unknown = await response
    .clone()
    .json()
    .catch(() => undefined);
  return isProblem(body) && body.code === 'identity_token_invalid';
}

/** Requests tokens for a secret that works once, and notes when they expire. */
async function issued(
  secret: string,
  send: (request: {
    readonly params: { readonly header: { readonly 'Idempotency-Key': string } };
    readonly signal: AbortSignal;
  }) => Promise<{ readonly data?: TokenSet; readonly error?: unknown; readonly response: Response }>,
): Promise<Tokens> {
  const header = { 'Idempotency-Key': await idempotencyKey(secret) };
  const askedAtMs = Date.now();
  const tokens = await unwrap(send({ params: { header }, signal: AbortSignal.timeout(TOKEN_TIMEOUT_MS) }));
  return { ...tokens, expires_at: new Date(askedAtMs + 1000 * tokens.expires_in).toISOString() };
}

/** Resolves after the time. @throws the signal's reason, at once */
async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const end = () => resolve();
  const timer = setTimeout(end, ms);
  signal?.addEventListener('abort', end);
  if (signal?.aborted !== true) await promise;
  clearTimeout(timer);
  signal?.removeEventListener('abort', end);
  signal?.throwIfAborted();
}
