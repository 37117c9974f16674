import { createHash, randomBytes } from 'node:crypto';
import { startTestSwitchboard, type RunningSwitchboard } from './switchboard.ts';
import { UserAgent, type Page } from './user-agent.ts';

/** Where clients of the tests think that Switchboard is. */
export const PUBLIC_URL = 'http://localhost:4000';
export const MCP_URL = `${PUBLIC_URL}/mcp`;
/** Registered without a port, as native apps do. */
const REDIRECT_URI = 'http://127.0.0.1/callback';

export interface Answered {
  readonly status: number;
  readonly headers: Headers;
  readonly json: any;
}

interface Tokens {
  readonly access_token: string;
  readonly refresh_token: string;
  readonly scope: string;
  readonly expires_in: number;
  /** The client that got them. */
  readonly clientId: string;
}

/** An authorization request of a client, and what it needs to redeem the code. */
interface Attempt {
  readonly url: string;
  readonly verifier: string;
  readonly redirectUri: string;
  readonly clientId: string;
}

interface At {
  readonly publicUrl: string;
  /** Returns where a public address is reached. */
  readonly reachedAt?: (url: string) => string;
  /** Makes a link that opens the pages of a user. */
  readonly link: (user: string) => Promise<string>;
}

export type McpSignIn = ReturnType<typeof mcpSignIn>;

/** What MCP clients, and users in browsers, ask of Switchboard's sign-in. */
export function mcpSignIn({ publicUrl, reachedAt = url => url, link }: At) {
  const mcpUrl = `${publicUrl}/mcp`;
  const authUrl = `${publicUrl}/auth`;
  const reach = (url: string | URL, init?: RequestInit) => fetch(reachedAt(String(url)), init);

  async function ask(url: string, init: RequestInit): Promise<Answered> {
    const response = await reach(url, init);
    const text = await response.text();
    const body = /^data: (.*)$/m.exec(text)?.[1] ?? text;
    const { status, headers } = response;
    return { status, headers, json: body.startsWith('{') ? JSON.parse(body) : text };
  }

  const register = (metadata: Record<string, unknown> = {}) =>
    ask(`${authUrl}/register`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        client_name: 'Test client',
        redirect_uris: [REDIRECT_URI],
        token_endpoint_auth_method: 'none',
        ...metadata,
      }),
    });

  function attempt(clientId: string, more: Readonly<Record<string, string>> = {}): Attempt {
    const verifier = randomBytes(32).toString('base64url');
    const query = new URLSearchParams({
      response_type: 'code',
      client_id: clientId,
      redirect_uri: 'http://127.0.0.1:5000/callback',
      state: 'the-state',
      code_challenge: createHash('sha256').update(verifier).digest('base64url'),
      code_challenge_method: 'S256',
      resource: mcpUrl,
      ...more,
    });
    const redirectUri = query.get('redirect_uri') ?? '';
    return { url: `${authUrl}/authorize?${query.toString()}`, verifier, redirectUri, clientId };
  }

  /** Goes to the page that asks for consent, signed in by a link. */
  async function toConsent(agent: UserAgent, url: string, user = 'alice'): Promise<Page> {
    const who = await agent.follow(await agent.get(url));
    return agent.follow(await agent.submit(who, { fields: { link: await link(user) } }));
  }

  /** Answers the page that asks for consent. Returns the address that leads back to the client, which is not fetched. */
  async function answer(agent: UserAgent, consent: Page, said: 'allow' | 'deny' = 'allow'): Promise<URL> {
    let page = await agent.submit(consent, { fields: { answer: said } });
    for (let hop = 0; hop < 5; hop++) {
      const location = page.headers.get('location');
      if (location === null) throw new Error(`no way back: ${page.status} ${page.html}`);
      if (!location.startsWith(`${publicUrl}/`)) return new URL(location);
      page = await agent.get(location);
    }
    throw new Error(`too many hops: ${agent.trace.join(', ')}`);
  }

  const token = (fields: Record<string, string>, headers: Record<string, string> = {}) =>
    ask(`${authUrl}/token`, { method: 'POST', headers, body: new URLSearchParams(fields) });

  const redeem = ({ clientId, redirectUri, verifier }: Attempt, back: URL, more = {}) =>
    token({
      grant_type: 'authorization_code',
      client_id: clientId,
      code: back.searchParams.get('code') ?? '',
      redirect_uri: redirectUri,
      code_verifier: verifier,
      ...more,
    });

  return {
    publicUrl,
    fetch: reach,
    ask,
    link,
    register,
    attempt,
    toConsent,
    answer,
    token,
    redeem,
    /** A new browser. */
    browser: () => new UserAgent(reachedAt),
    refresh: ({ clientId, refresh_token }: Pick<Tokens, 'clientId' | 'refresh_token'>, more = {}) =>
      token({ grant_type: 'refresh_token', client_id: clientId, refresh_token, ...more }),
    /** All of it: registers a client, signs a user in, and returns the tokens. */
    async tokens(user = 'alice', more: Readonly<Record<string, string>> = {}): Promise<Tokens> {
      const agent = new UserAgent(reachedAt);
      const clientId = (await register()).json.client_id as string;
      const begun = attempt(clientId, more);
      const back = await answer(agent, await toConsent(agent, begun.url, user));
      const { status, json } = await redeem(begun, back);
      if (status !== 200) throw new Error(`no tokens: ${status} ${JSON.stringify(json)}`);
      return { ...json, clientId };
    },
    /** Sends a JSON-RPC message to an MCP endpoint. */
    rpc: (path: string, accessToken: string | undefined, method = 'tools/list', params: object = {}) =>
      ask(`${publicUrl}${path}`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          ...(accessToken === undefined ? {} : { authorization: `Bearer ${accessToken}` }),
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
      }),
  };
}

/** Returns a function that makes links for users with an API key. */
export const linksBy =
  (url: string, key: string) =>
  async (user: string): Promise<string> => {
    const response = await fetch(`${url}/v1/identity/manage`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': key },
      body: JSON.stringify({ user_id: user }),
    });
    return ((await response.json()) as { url: string }).url;
  };

/** A Switchboard with its sign-in for MCP clients. */
export async function startWithSignIn(
  options: Parameters<typeof startTestSwitchboard>[0] = {},
): Promise<McpSignIn & AsyncDisposable & { readonly sb: RunningSwitchboard }> {
  const sb = await startTestSwitchboard({ ...options, env: { PUBLIC_URL, ...options.env } });
  const reachedAt = (url: string) => url.replace(PUBLIC_URL, sb.url);
  return {
    ...mcpSignIn({ publicUrl: PUBLIC_URL, reachedAt, link: linksBy(sb.url, sb.key) }),
    sb,
    [Symbol.asyncDispose]: () => sb[Symbol.asyncDispose](),
  };
}
