import type { TokenSet } from '../identity.ts';
import {
  install,
  installOnPostgres,
  PUBLIC_URL,
  type Installation,
  type InstallationOptions,
  type Process,
  type Reply,
} from '../processes.ts';
import { UserAgent, type Page } from '../user-agent.ts';
import { startProtectedServer, type ProtectedServer } from './protected.ts';
import { startAuthorizationServer, type AuthorizationServer } from './server.ts';

type Tokens = Pick<TokenSet, 'access_token'>;

/** Processes of the real program whose catalogue has a server with a sign-in of its own. */
export interface OwnSignInInstallation extends AsyncDisposable {
  readonly installation: Installation;
  readonly issuer: AuthorizationServer;
  readonly mcp: ProtectedServer;
  /** Calls that server for a user. */
  call(process: Process, tokens: Tokens): Promise<Reply>;
  /** A browser that reaches this process by the public address. */
  browserAt(process: () => Process): UserAgent;
  /** Makes a call, which must ask for a sign-in, and goes through it. */
  connect(process: Process, tokens: Tokens): Promise<Page>;
  /** Goes through a sign-in to the address that the authorization server sends the browser back to, which is not fetched. */
  goTo(process: Process, tokens: Tokens, agent?: UserAgent): Promise<Begun>;
}

export interface Begun {
  readonly sessionId: string;
  /** The browser that began. */
  readonly agent: UserAgent;
  readonly callback: string;
}

export const SERVER_ID = 'notes';

/** @param onPostgres false: an embedded database, which belongs to one process */
export async function installOwnSignIn(
  onPostgres: boolean,
  options: Pick<InstallationOptions, 'env' | 'logFile'> = {},
): Promise<OwnSignInInstallation> {
  await using opened = new AsyncDisposableStack();
  const issuer = opened.use(await startAuthorizationServer());
  const mcp = opened.use(await startProtectedServer({ authorizationServer: issuer }));
  const entry = {
    id: SERVER_ID,
    name: 'Notes',
    description: 'Notes of a team.',
    remote_url: mcp.url,
    auth: { kind: 'oauth' },
  };
  const all = { ...options, servers: [entry] };
  const installation = opened.use(await (onPostgres ? installOnPostgres(all) : install(all)));
  const call: OwnSignInInstallation['call'] = (process, { access_token }) =>
    process.post(
      '/v1/mcp/tools/call',
      { server_id: SERVER_ID, name: 'echo', arguments: { message: 'hi' } },
      { authorization: `Bearer ${access_token}` },
    );
  const browserAt: OwnSignInInstallation['browserAt'] = process =>
    new UserAgent(url => url.replace(PUBLIC_URL, process().url));
  const linkOf = async (process: Process, tokens: Tokens) => {
    const { json, text } = await call(process, tokens);
    if (json?.code !== 'connection_required') throw new Error(`no link: ${text}`);
    return json as { auth_url: string; session_id: string };
  };
  const stack = opened.move();
  return {
    installation,
    issuer,
    mcp,
    call,
    browserAt,
    async connect(process, tokens) {
      const { auth_url } = await linkOf(process, tokens);
      return browserAt(() => process).connect(auth_url);
    },
    async goTo(process, tokens, agent = browserAt(() => process)) {
      const { auth_url, session_id } = await linkOf(process, tokens);
      const page = await agent.open(auth_url);
      const callback = await agent.authorize(page, { stopAt: url => url.startsWith(PUBLIC_URL) });
      return { sessionId: session_id, agent, callback };
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}
