import type { IdentityUnderTest } from '../identity.ts';
import type { Answer } from '../switchboard.ts';
import { UserAgent, type Page } from '../user-agent.ts';
import { startProtectedServer, type ProtectedServer, type ProtectedServerOptions } from './protected.ts';
import {
  startAuthorizationServer,
  type AuthorizationServer,
  type AuthorizationServerOptions,
} from './server.ts';

/** Someone whose calls are made with a key that acts for them. */
export interface User {
  readonly id: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** How a sign-in ended. */
interface SignedIn {
  /** The page that the browser ended on. */
  readonly page: Page;
  /** What the app's backend was told. */
  readonly session: { readonly status: string; readonly error?: string };
}

/** A server of the catalogue with a sign-in of its own, and a user who calls it. */
export interface Scene extends AsyncDisposable {
  readonly serverId: string;
  readonly issuer: AuthorizationServer;
  readonly mcp: ProtectedServer;
  readonly user: User;
  /** Calls the tool `echo`, for the scene's user unless another is given. */
  call(user?: User): Promise<Answer>;
  /** Makes a call, which must ask for a sign-in, and goes through it. */
  connect(user?: User, agent?: UserAgent): Promise<SignedIn>;
}

export interface SceneOptions {
  /** Its switches, or one that there is. */
  readonly issuer?: AuthorizationServerOptions | AuthorizationServer;
  readonly mcp?: Partial<ProtectedServerOptions>;
  /** Of the catalogue entry; null leaves it out. Default: kind `oauth`. */
  readonly auth?: object | null;
}

let count = 0;

/** Makes a key that acts for a new user. */
export async function newUser({ admin }: Pick<IdentityUnderTest, 'admin'>, tenant = 'local'): Promise<User> {
  const id = `user-${++count}`;
  const { status, json } = await admin.request('POST', '/keys', { name: id, tenant, user_id: id });
  if (status !== 200) throw new Error(`no key: ${JSON.stringify(json)}`);
  return { id, headers: { 'x-api-key': json.key } };
}

/** Starts an authorization server and an MCP server behind it, and adds that to the catalogue. */
export async function addScene(sb: IdentityUnderTest, options: SceneOptions = {}): Promise<Scene> {
  await using opened = new AsyncDisposableStack();
  const { issuer: wanted = {}, auth } = options;
  const issuer = isRunning(wanted) ? wanted : opened.use(await startAuthorizationServer(wanted));
  const mcp = opened.use(await startProtectedServer({ authorizationServer: issuer, ...options.mcp }));
  const serverId = `own-${++count}`;
  await addEntry(sb, serverId, mcp.url, auth === undefined ? {} : auth);
  const user = await newUser(sb);
  const call: Scene['call'] = (as = user) => echo(sb, serverId, as);
  const stack = opened.move();
  return {
    serverId,
    issuer,
    mcp,
    user,
    call,
    async connect(as = user, agent = new UserAgent()) {
      const required = await call(as);
      if (required.json?.code !== 'connection_required') throw new Error(`no link: ${required.text}`);
      const page = await agent.connect(required.json.auth_url);
      return { page, session: (await sb.poll(required.json.session_id)).json };
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

const isRunning = (wanted: AuthorizationServerOptions | AuthorizationServer): wanted is AuthorizationServer =>
  'sent' in wanted;

/** Adds a server to the catalogue. @param auth of its entry, over kind `oauth`; null leaves it out */
export async function addEntry(
  { admin }: Pick<IdentityUnderTest, 'admin'>,
  id: string,
  url: string,
  auth: object | null = {},
): Promise<void> {
  const entry = {
    id,
    name: `Name of ${id}`,
    description: 'Notes of a team.',
    remote_url: url,
    ...(auth === null ? {} : { auth: { kind: 'oauth', ...auth } }),
  };
  const { json } = await admin.request('POST', '/catalogue/import', JSON.stringify(entry));
  if (json.imported !== 1) throw new Error(`not added: ${JSON.stringify(json)}`);
}

/** Calls the tool `echo` of a server for a user. */
export const echo = (
  sb: Pick<IdentityUnderTest, 'post'>,
  serverId: string,
  { headers }: User,
  message = 'hello',
): Promise<Answer> =>
  sb.post('/v1/mcp/tools/call', { server_id: serverId, name: 'echo', arguments: { message } }, headers);
