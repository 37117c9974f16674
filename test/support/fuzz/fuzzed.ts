import { startIdentity } from '../identity.ts';
import { listed, startRegistry } from '../registry.ts';
import { keepOn, RESULTS_ENV } from '../results.ts';
import type { CatalogueLine, RunningSwitchboard } from '../switchboard.ts';
import { startV2Server } from '../upstreams/v2.ts';
import { UserAgent } from '../user-agent.ts';
import type { OpenApi, Operation } from './document.ts';
import type { Keys } from './odd-requests.ts';
import type { FuzzRequest } from './send.ts';
import type { Known } from './values.ts';

export interface Fuzzed extends AsyncDisposable {
  readonly url: string;
  readonly document: OpenApi;
  readonly known: Known;
  /** Those of `/mcp`. */
  readonly keys: Keys;
  keysFor(operation: Operation): Keys;
  readonly post: RunningSwitchboard['post'];
  /** The request, at a key that is still good where it names the one there is to change, rotate and revoke. */
  aimed(request: FuzzRequest): FuzzRequest;
  /** Undoes what a success of this operation has changed that later requests need. */
  restore(operationId: string): Promise<void>;
  /** Lines of the log of level 50 and above. */
  errorsLogged(): string[];
}

/** Stands for the key of the moment in paths. */
const VICTIM = 'victim';
/** Stands for the code of a session that waits for the app. */
const CODE = 'code_of_the_moment';
const USERS = ['ada', 'bob', 'eve'];
const RETURN_URL = 'https://app.invalid/back';
const REFUSED = 'http://127.0.0.1:1';

/**
 * A whole Switchboard with something to succeed at: a tool server, one that is down, one that is no longer active, a registry, an identity
 * provider with a user who has signed in. No rate limit: it would answer most of the requests.
 */
export async function startFuzzed(): Promise<Fuzzed> {
  await using opened = new AsyncDisposableStack();
  const upstream = opened.use(await startV2Server({ legacy: 'stateless' }));
  const registry = opened.use(await startRegistry([listed('com.example/tides'), listed('com.example/bees')]));
  const server = (id: string, remote_url: string): CatalogueLine => ({
    id,
    name: id,
    description: `Echoes messages: ${id}.`,
    remote_url,
  });
  const catalogue = [
    server('echo', upstream.url),
    server('dead', `${REFUSED}/mcp`),
    server('doomed', upstream.url),
    server('gone', upstream.url),
  ];
  const sb = opened.use(
    await startIdentity({
      catalogue,
      env: { ...RESULTS_ENV, SWITCHBOARD_RATE_LIMIT: 'off', LOG_LEVEL: 'warn' },
    }),
  );
  const onSocket = async (path: string, body?: unknown) => (await sb.admin.request('POST', path, body)).json;
  const createKey = (scopes: string[]): Promise<{ id: string; key: string }> =>
    onSocket('/keys', { name: 'test', scopes });
  const restoreCatalogue = async () => {
    await onSocket('/catalogue/import', catalogue.map(line => JSON.stringify(line)).join('\n'));
    await onSocket('/catalogue/gone/deactivate');
  };
  await restoreCatalogue();
  await onSocket('/tenants/local', { return_urls: [RETURN_URL] });
  const setWebhook = () => sb.admin.request('PUT', '/tenants/local/webhook', { url: `${REFUSED}/hooks` });
  await setWebhook();
  const waiting = await waitingSessions(sb);
  const everything = await createKey(['search', 'proxy', 'identity']);
  const admin = await createKey(['admin']);
  const revoked = await createKey(['search', 'proxy', 'identity']);
  await onSocket(`/keys/${revoked.id}/revoke`);
  let victim = await createKey(['search']);
  const keys: Keys = { right: everything.key, otherScope: admin.key, revoked: revoked.key };
  const { json: document } = await sb.get('/openapi.json');
  const known = await knownTo(sb, { registry: registry.url, key: everything });
  const stack = opened.move();
  return {
    url: sb.url,
    document,
    known,
    post: sb.post,
    keys,
    keysFor: ({ path }) =>
      path.startsWith('/v1/admin/') ? { ...keys, right: admin.key, otherScope: everything.key } : keys,
    aimed: request => {
      const atKey = { ...request, target: request.target.replace(`/keys/${VICTIM}`, `/keys/${victim.id}`) };
      const { body } = request;
      if (typeof body !== 'string' || !body.includes(CODE)) return atKey;
      // A code works once, and a session ends when the app names another user.
      const at = waiting.findIndex(({ user }) => body.includes(`"${user}"`));
      const [session] = waiting.splice(Math.max(0, at), 1);
      if (!session) return atKey;
      return {
        ...atKey,
        target: atKey.target.replace(/ses_[\w-]{43}/, session.id),
        body: body.replace(CODE, session.code),
      };
    },
    restore: async operationId => {
      if (/Catalogue$|^(put|activate|deactivate)Server$/.test(operationId)) await restoreCatalogue();
      if (operationId === 'removeWebhook') await setWebhook();
      if (/^(rotate|revoke)Key$/.test(operationId)) victim = await createKey(['search']);
    },
    errorsLogged: () =>
      sb
        .logged()
        .split('\n')
        .filter(line => line !== '' && JSON.parse(line).level >= 50),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

/** Sessions of each user that wait for the app, with their codes. */
async function waitingSessions(sb: Awaited<ReturnType<typeof startIdentity>>) {
  const sessions: { user: string; id: string; code: string }[] = [];
  for (const user of [...USERS, ...USERS, ...USERS, ...USERS]) {
    const { json } = await sb.createSession(user, { mode: 'caller', return_url: RETURN_URL });
    const back = await new UserAgent().get(await sb.authorize(json.auth_url, { login: user }));
    const code = new URL(back.headers.get('location') ?? '').searchParams.get('code');
    sessions.push({ user, id: json.session_id, code: code ?? '' });
  }
  return sessions;
}

async function knownTo(
  sb: Awaited<ReturnType<typeof startIdentity>>,
  { registry, key }: { registry: string; key: { id: string; key: string } },
): Promise<Known> {
  const headers = { 'x-api-key': key.key };
  const search = await sb.post('/v1/search', { query: 'echo a message' }, headers);
  const signedIn = async (userId: string): Promise<string> => {
    const { json } = await sb.createSession(userId, {}, headers);
    await sb.signIn(json.auth_url, { login: userId });
    return json.session_id;
  };
  const pending = await sb.createSession('bob', {}, headers);
  const redeemed = await sb.token(await signedIn('eve'), headers);
  const servers = await sb.get('/v0.1/servers', headers);
  // As long as the run.
  const ahead = { now: () => Date.now() + 3_600_000 };
  const result = await keepOn(sb.db, { keyId: key.id }, 'echo a message\n'.repeat(10_000), ahead);
  const inAnHour = new Date(Date.now() + 3_600_000).toISOString();
  return {
    tool_name: ['echo', 'echo', 'fail', 'region', 'none'],
    query: ['echo a message', 'send mail'],
    server_id: ['echo', 'echo', 'dead', 'gone', 'missing'],
    name: ['echo', 'region', 'fail', 'none'],
    arguments: [{ message: 'hi' }, {}, { region: 'eu' }],
    method: [
      'tools/list',
      'tools/call',
      'ping',
      'server/discover',
      'initialize',
      'notifications/cancelled',
      'x',
    ],
    params: [{ name: 'echo', arguments: { message: 'hi' } }, {}, { _meta: {} }, { cursor: 'x' }],
    query_log_id: [search.json.metadata.query_log_id, 'qry_none'],
    tool: ['echo', 'none'],
    user_id: USERS,
    code: [CODE],
    values: [{ token: 'a-key-of-the-fuzz' }, { token: '' }, {}],
    header: ['X-Api-Key', 'Host'],
    provider: ['local', 'none'],
    session_id: [await signedIn('ada'), pending.json.session_id],
    refresh_token: [redeemed.json.refresh_token],
    resource: ['https://one.invalid/mcp'],
    'scopes[]': ['openid', 'email'],
    return_url: [RETURN_URL],
    login_hint: ['ada'],
    url: [registry, registry, `${registry}/none`, 'https://user:pw@one.invalid', 'ftp://one.invalid'],
    tenant: ['local', 'none'],
    expires_at: [inAnHour, '2001-01-01T00:00:00Z'],
    cursor: ['1', '2026-11-21~x'],
    key_id: [key.id, 'none'],
    event: ['key_created', 'none'],
    handle: [result, result, result, 'res_none'],
    offset: ['0', '70000', '150000'],
    max_chars: ['1', '500', '100000'],
    find: ['ECHO', 'none'],
    from: ['0', '70000'],
    server_name: [...servers.json.servers.map((one: any) => one.server.name), 'com.example/none'],
    version: ['latest', servers.json.servers[0].server.version, '1.0.0'],
    'id of keys': [VICTIM, 'none'],
    issuer: ['https://issuer.invalid', 'http://localhost:1', 'no issuer'],
    remote_url: ['https://one.invalid/mcp', 'ftp://one.invalid'],
    homepage: ['https://one.invalid'],
    repository: ['https://one.invalid/code'],
    'allowed_origins[]': ['https://one.invalid', 'https://one.invalid/path'],
    'id of tenants': ['local', 'none'],
    'id of catalogue': ['echo', 'doomed', 'dead', 'gone', 'missing'],
  };
}
