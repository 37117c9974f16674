import { createHash, randomBytes } from 'node:crypto';
import { startTestSwitchboard, type RunningSwitchboard } from './switchboard.ts';
import { UserAgent, type Page } from './user-agent.ts';

/** Where clients think that Switchboard is. */
export const PUBLIC_URL = 'http://localhost:4000';
export const MCP_URL = `${PUBLIC_URL}/mcp`;
const AUTH_URL = `${PUBLIC_URL}/auth`;

export interface Answered {
  readonly status: number;
  readonly headers: Headers;
  readonly json: any;
}

export interface Tokens {
  readonly access_token: string;
  readonly refresh_token: string;
  readonly scope: string;
  readonly expires_in: number;
}

/** An authorization request of a client, and what it needs to redeem the code. */
export interface Attempt {
  readonly url: string;
  readonly verifier: string;
  readonly redirectUri: string;
  readonly clientId: string;
}

/** A Switchboard with its sign-in for MCP clients, and the requests of such clients. */
export interface SignInSetting extends AsyncDisposable {
  readonly sb: RunningSwitchboard;
  /** Returns where a public address is reached. */
  readonly reachedAt: (url: string) => string;
  readonly fetch: (url: string | URL, init?: RequestInit) => Promise<Response>;
  /** A new browser. */
  browser(): UserAgent;
  /** A link that opens the pages of a user. */
  link(user: string): Promise<string>;
  register(metadata?: Record<string, unknown>): Promise<Answered>;
  attempt(clientId: string, options?: Record<string, string>): Attempt;
  /** Goes to the page that asks for consent, signed in by a link. */
  toConsent(agent: UserAgent, attempt: Attempt, user?: string): Promise<Page>;
  /** Answers the page that asks for consent; returns the address that leads back to the client. */
  answer(agent: UserAgent, consent: Page, answer?: 'allow' | 'deny'): Promise<URL>;
  token(fields: Record<string, string>, headers?: Record<string, string>): Promise<Answered>;
  redeem(attempt: Attempt, back: URL): Promise<Answered>;
  /** All of it: registers a client, signs a user in, and returns the tokens. */
  tokens(user?: string, options?: Record<string, string>): Promise<Tokens & { readonly clientId: string }>;
  /** Sends a JSON-RPC message to an MCP endpoint. */
  rpc(path: string, token: string | undefined, method?: string, params?: object): Promise<Answered>;
}

export const REDIRECT_URI = 'http://127.0.0.1/callback';

export async function startWithSignIn(
  options: Parameters<typeof startTestSwitchboard>[0] = {},
): Promise<SignInSetting> {
  const sb = await startTestSwitchboard({ ...options, env: { PUBLIC_URL, ...options.env } });
  const reachedAt = (url: string) => url.replace(PUBLIC_URL, sb.url);
  const reach: SignInSetting['fetch'] = (url, init) => fetch(reachedAt(String(url)), init);
  const ask = async (url: string, init: RequestInit): Promise<Answered> => {
    const response = await reach(url, init);
    const text = await response.text();
    const body = /^data: (.*)$/m.exec(text)?.[1] ?? text;
    const isJson = body.startsWith('{');
    return { status: response.status, headers: response.headers, json: isJson ? JSON.parse(body) : text };
  };

  const setting: SignInSetting = {
    sb,
    reachedAt,
    fetch: reach,
    browser: () => new UserAgent(reachedAt),
    async link(user) {
      return (await sb.post('/v1/identity/manage', { user_id: user })).json.url as string;
    },
    register: (metadata = {}) =>
      ask(`${AUTH_URL}/register`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({
          client_name: 'Test client',
          redirect_uris: [REDIRECT_URI],
          token_endpoint_auth_method: 'none',
          ...metadata,
        }),
      }),
    attempt(clientId, { redirect_uri: redirectUri = 'http://127.0.0.1:5000/callback', ...more } = {}) {
      const verifier = randomBytes(32).toString('base64url');
      const query = new URLSearchParams({
        response_type: 'code',
        client_id: clientId,
        redirect_uri: redirectUri,
        state: 'the-state',
        code_challenge: createHash('sha256').update(verifier).digest('base64url'),
        code_challenge_method: 'S256',
        resource: MCP_URL,
        ...more,
      });
      return { url: `${AUTH_URL}/authorize?${query.toString()}`, verifier, redirectUri, clientId };
    },
    async toConsent(agent, attempt, user = 'alice') {
      const who = await agent.follow(await agent.get(attempt.url));
      const fields = { link: await setting.link(user) };
      return agent.follow(await agent.submit(who, { fields }));
    },
    async answer(agent, consent, answer = 'allow') {
      let page = await agent.submit(consent, { fields: { answer } });
      for (let hop = 0; hop < 5; hop++) {
        const location = page.headers.get('location');
        if (location === null) throw new Error(`no way back: ${page.status} ${page.html}`);
        if (!location.startsWith(PUBLIC_URL)) return new URL(location);
        page = await agent.get(location);
      }
      throw new Error(`too many hops: ${agent.trace.join(', ')}`);
    },
    token: (fields, headers = {}) =>
      ask(`${AUTH_URL}/token`, { method: 'POST', headers, body: new URLSearchParams(fields) }),
    redeem: ({ clientId, redirectUri, verifier }, back) =>
      setting.token({
        grant_type: 'authorization_code',
        client_id: clientId,
        code: back.searchParams.get('code') ?? '',
        redirect_uri: redirectUri,
        code_verifier: verifier,
      }),
    async tokens(user = 'alice', options = {}) {
      const agent = setting.browser();
      const clientId = (await setting.register()).json.client_id as string;
      const attempt = setting.attempt(clientId, options);
      const back = await setting.answer(agent, await setting.toConsent(agent, attempt, user));
      const { status, json } = await setting.redeem(attempt, back);
      if (status !== 200) throw new Error(`no tokens: ${status} ${JSON.stringify(json)}`);
      return { ...(json as Tokens), clientId };
    },
    rpc: (path, token, method = 'tools/list', params = {}) =>
      ask(`${PUBLIC_URL}${path}`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
      }),
    [Symbol.asyncDispose]: () => sb[Symbol.asyncDispose](),
  };
  return setting;
}
