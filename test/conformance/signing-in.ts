/**
 * The scenarios `auth/*`: the suite's MCP server has an authorization server of its own. Plays the operator, a caller for a user,
 * and that user's browser.
 */
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { connectAdminSocket } from '../support/admin-socket.ts';
import { serve, temporaryFolder } from '../support/program.ts';
import { UserAgent } from '../support/user-agent.ts';
import { Calls, type Reply, type Target } from './calls.ts';

interface Scenario {
  readonly name: string;
  /** The server's id in the catalogue. */
  readonly serverId: string;
  /** The suite's MCP server. */
  readonly url: string;
  /** What the suite tells its client beforehand, such as the credentials of a client. */
  readonly context: Readonly<Record<string, string>>;
}

/** More than any scenario needs: a step-up, or another authorization server. */
const MAX_SIGN_INS = 4;

/** Settings of a Switchboard that a scenario needs for itself. */
const SETTINGS: Readonly<Record<string, (scenario: Scenario) => Record<string, string>>> = {
  'auth/basic-cimd': () => ({
    SWITCHBOARD_CLIENT_METADATA_URL: 'https://conformance-test.local/client-metadata.json',
  }),
  'auth/pre-registration': ({ url, context: { issuer = '', client_id, client_secret } }) => ({
    SWITCHBOARD_OAUTH_CLIENTS: JSON.stringify({
      [issuer]: { client_id, client_secret, allowed_origins: [new URL(url).origin] },
    }),
  }),
};

/** Where the suite's servers lie, and how that is to end. Every other scenario ends with a call. */
const REFUSALS: Readonly<Record<string, { readonly at: 'call' | 'sign-in'; readonly code: string }>> = {
  'auth/resource-mismatch': { at: 'call', code: 'upstream_protocol' },
  'auth/metadata-issuer-mismatch': { at: 'call', code: 'upstream_protocol' },
  'auth/scope-retry-limit': { at: 'call', code: 'upstream_forbidden' },
  'auth/iss-supported-missing': { at: 'sign-in', code: 'exchange_failed' },
  'auth/iss-wrong-issuer': { at: 'sign-in', code: 'exchange_failed' },
  'auth/iss-unexpected': { at: 'sign-in', code: 'exchange_failed' },
  'auth/iss-normalized': { at: 'sign-in', code: 'exchange_failed' },
};

/** Says how an attempt ended that was not to succeed. */
class Refused extends Error {
  readonly at: 'call' | 'sign-in';
  readonly code: string;

  constructor(at: 'call' | 'sign-in', code: string, story: string) {
    super(`${at}: ${code}: ${story}`);
    this.at = at;
    this.code = code;
  }
}

/** Runs one scenario against the Switchboard that is there, or one of its own. @throws Error when it ends otherwise than it should */
export async function runSignIn(scenario: Scenario, shared: Target): Promise<void> {
  await using opened = new AsyncDisposableStack();
  const settings = SETTINGS[scenario.name]?.(scenario);
  const target = settings === undefined ? shared : opened.use(await startOwn(settings, shared.key));
  const user = await addServerAndUser(target, scenario);
  const expected = REFUSALS[scenario.name];
  const ended = await callEverything(user).then(
    () => undefined,
    (error: unknown) => {
      if (error instanceof Refused) return error;
      throw error;
    },
  );
  if (ended?.at === expected?.at && ended?.code === expected?.code) return;
  throw ended ?? new Error(`it succeeded, and should have ended with ${expected?.code}`);
}

async function startOwn(settings: Record<string, string>, key: string): Promise<Target & AsyncDisposable> {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(temporaryFolder()).path;
  const dataDir = path.join(folder, 'data');
  await mkdir(dataDir);
  const switchboard = opened.use(
    await serve({
      SWITCHBOARD_DATA_DIR: dataDir,
      SWITCHBOARD_CATALOGUE: path.resolve('test/support/one-server.jsonl'),
      SWITCHBOARD_API_KEY: key,
      SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
      ...settings,
    }),
  );
  await switchboard.ready();
  const stack = opened.move();
  return {
    url: switchboard.url,
    key,
    socket: path.join(dataDir, 'control.sock'),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

interface User {
  readonly calls: Calls;
  /** The app's backend, which may look at sign-ins. */
  readonly backend: Calls;
}

async function addServerAndUser(target: Target, { name, serverId, url }: Scenario): Promise<User> {
  const admin = connectAdminSocket(target.socket);
  // Where nothing is said, the server's 401 has to teach it.
  const auth = name.startsWith('auth/metadata-') ? { auth: { kind: 'oauth' } } : {};
  const entry = { id: serverId, name, description: name, remote_url: url, ...auth };
  const imported = await admin.request('POST', '/catalogue/import', JSON.stringify(entry));
  if (imported.json.imported !== 1) throw new Error(`not added: ${JSON.stringify(imported.json)}`);
  const created = await admin.request('POST', '/keys', { name, user_id: serverId });
  if (created.status !== 200) throw new Error(`no key: ${JSON.stringify(created.json)}`);
  await admin.close();
  return {
    calls: new Calls({ ...target, key: created.json.key }, serverId),
    backend: new Calls(target, serverId),
  };
}

async function callEverything(user: User): Promise<void> {
  const { tools } = await signingIn(user, () => user.calls.request('tools/list'));
  for (const { name } of tools)
    await signingIn(user, () => user.calls.request('tools/call', { name, arguments: {} }));
}

/** The call's result, after as many sign-ins as it asks for. @throws Refused */
async function signingIn(user: User, attempt: () => Promise<Reply>): Promise<any> {
  for (let signIns = 0; ; signIns++) {
    const answer = await attempt();
    if (answer.json.result) return answer.json.result;
    if (!isLink(answer) || signIns === MAX_SIGN_INS) throw refusedCall(answer);
    await signIn(user, answer, attempt);
  }
}

const isLink = ({ json }: Reply): boolean => json.code === 'connection_required';

/** What comes of a call that was made is told as JSON-RPC. */
const refusedCall = ({ json }: Reply): Refused =>
  new Refused('call', json.code ?? json.error?.data?.reason, json.detail ?? json.error?.message);

/** The user opens the link. @throws Refused when the sign-in ends without a connection */
async function signIn({ backend }: User, { json }: Reply, attempt: () => Promise<Reply>): Promise<void> {
  const page = await new UserAgent().connect(json.auth_url);
  const { json: session } = await backend.poll(json.session_id);
  if (page.status === 200 && session.status === 'complete') return;
  // Nothing may have been connected.
  const again = await attempt();
  if (page.status !== 400 || !isLink(again))
    throw new Error(`${page.status} on the last page, then ${JSON.stringify(again.json)}`);
  throw new Refused('sign-in', String(session.error).split(':')[0] ?? '', session.error);
}
