/**
 * Measures what acting for a user costs: npm run bench:identity -- [--calls 1000] [--clients 16] [--refreshes 2000] [--json]
 *
 * Calls: the same tool of the same small MCP server through two entries, one without auth, one that takes the token of a
 * connected account, one call at a time over HTTP and turn about, so that both see the same machine. Statements are counted
 * where Drizzle hands them to the driver. Refreshes: each client has a family of its own and turns its refresh token over,
 * over HTTP, all at the same time. On the embedded database, and, where DATABASE_URL names a server, on a database made
 * there for the run. Everything but that server runs in this process: absolute times hold client and peers, too.
 */
import { openDatabase, type Database, type OpenDatabase } from '../src/platform/database/database.ts';
import { openPostgres } from '../src/platform/database/postgres.ts';
import { startIdentityProvider, type IdentityProvider } from '../test/support/identity-provider.ts';
import { createDatabaseOn } from '../test/support/temporary-database.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../test/support/switchboard.ts';
import { listen, readBody } from '../test/support/upstreams/http.ts';
import { UserAgent } from '../test/support/user-agent.ts';
import { printFacts, readSizes } from './command-line.ts';
import { percentile } from './measures.ts';

const WARM_UP_CALLS = 100;

const DEFAULTS = { calls: 1_000, clients: 16, refreshes: 2_000 };
type Sizes = typeof DEFAULTS;

interface Tokens {
  readonly access_token: string;
  readonly refresh_token: string;
}

/** As little of a server as revision 2026-07-28 allows: what it costs must not hide what is measured. */
function startServer() {
  const answers: Readonly<Record<string, object>> = {
    'server/discover': { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } },
    'tools/call': { content: [{ type: 'text', text: 'ok' }] },
  };
  return listen((request, response) => {
    void readBody(request).then(({ message: { id, method = '' } }) => {
      const result = { resultType: 'complete', ...answers[method] };
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ jsonrpc: '2.0', id, result }));
    });
  });
}

/** The statements that go to the driver, those of transactions and these themselves, too. */
class Statements {
  count = 0;

  watch(db: Database): void {
    const { session } = db._;
    const prepare = session.prepareQuery.bind(session);
    session.prepareQuery = (...args) => {
      const query = prepare(...args);
      const execute = query.execute.bind(query);
      query.execute = values => {
        this.count++;
        return execute(values);
      };
      return query;
    };
    const transaction = session.transaction.bind(session);
    session.transaction = (work, config) => {
      this.count += 2;
      return transaction(tx => {
        this.watch(tx);
        return work(tx);
      }, config);
    };
  }
}

/** A database of its own on the server of the URL. */
async function openOnServer(url: string): Promise<OpenDatabase> {
  const database = await createDatabaseOn(url);
  const opened = await openPostgres(database.url);
  return { ...opened, close: () => opened.close().then(() => database[Symbol.asyncDispose]()) };
}

async function connect(sb: RunningSwitchboard, user: string): Promise<Tokens> {
  const { json } = await sb.post('/v1/identity/sessions', { user_id: user, provider: 'local' });
  const isOurs = (url: string) => url.startsWith(`${sb.url}/`);
  await new UserAgent().signIn(json.auth_url, { login: user, stopAt: isOurs });
  const answer = await sb.post('/v1/identity/token', { session_id: json.session_id });
  if (answer.status !== 200) throw new Error(`no tokens: ${answer.text}`);
  return answer.json;
}

async function measureCalls(sb: RunningSwitchboard, statements: Statements, { calls }: Sizes) {
  const { access_token } = await connect(sb, 'caller');
  const kinds = {
    plain: { server: 'open', headers: {}, times: [] as number[], statements: 0 },
    user: {
      server: 'acting',
      headers: { authorization: `Bearer ${access_token}` },
      times: [] as number[],
      statements: 0,
    },
  };
  const call = async ({ server, headers, times }: (typeof kinds)['plain' | 'user']) => {
    const startedAt = performance.now();
    const { status, text } = await sb.post('/v1/mcp/tools/call', { server_id: server, name: 'any' }, headers);
    times.push(performance.now() - startedAt);
    if (status !== 200) throw new Error(`${server}: ${status} ${text}`);
  };
  const both = [kinds.plain, kinds.user];
  for (let at = 0; at < WARM_UP_CALLS; at++) for (const kind of both) await call(kind);
  for (const kind of both) kind.times.length = 0;
  for (let at = 0; at < calls; at++) {
    for (const kind of at % 2 === 0 ? both : both.toReversed()) {
      const before = statements.count;
      await call(kind);
      kind.statements += statements.count - before;
    }
  }
  const [plain, user] = both.map(kind => percentile(kind.times, 0.5)) as [number, number];
  return {
    call_plain_p50_ms: plain,
    call_user_p50_ms: user,
    call_user_to_plain: user / plain,
    call_plain_p95_ms: percentile(kinds.plain.times, 0.95),
    call_user_p95_ms: percentile(kinds.user.times, 0.95),
    call_plain_statements: kinds.plain.statements / calls,
    call_user_statements: kinds.user.statements / calls,
  };
}

async function measureRefreshes(sb: RunningSwitchboard, statements: Statements, sizes: Sizes) {
  const families: string[] = [];
  for (let at = 0; at < sizes.clients; at++) families.push((await connect(sb, `client-${at}`)).refresh_token);
  const times: number[] = [];
  let left = sizes.refreshes;
  const turnOver = async (first: string) => {
    for (let token = first; left > 0;) {
      left--;
      const startedAt = performance.now();
      const { status, json, text } = await sb.post('/v1/identity/refresh', { refresh_token: token });
      times.push(performance.now() - startedAt);
      if (status !== 200) throw new Error(`refresh: ${status} ${text}`);
      token = json.refresh_token;
    }
  };
  const before = statements.count;
  const startedAt = performance.now();
  await Promise.all(families.map(turnOver));
  const seconds = (performance.now() - startedAt) / 1000;
  return {
    refresh_clients: sizes.clients,
    refreshes_per_second: times.length / seconds,
    refresh_p50_ms: percentile(times, 0.5),
    refresh_p95_ms: percentile(times, 0.95),
    refresh_statements: (statements.count - before) / times.length,
  };
}

async function measure(name: string, database: OpenDatabase, sizes: Sizes) {
  await using stack = new AsyncDisposableStack();
  stack.defer(() => database.close());
  const idp = stack.use(await startIdentityProvider());
  const server = stack.use(await startServer());
  const statements = new Statements();
  statements.watch(database.db);
  const sb = stack.use(await startSwitchboard(idp, server.origin, database));
  idp.allowRedirect(`${sb.url}/oauth/callback/local`);
  return {
    database: name,
    ...(await measureCalls(sb, statements, sizes)),
    ...(await measureRefreshes(sb, statements, sizes)),
  };
}

const startSwitchboard = (idp: IdentityProvider, origin: string, database: OpenDatabase) =>
  startTestSwitchboard({
    catalogue: [
      { id: 'open', remote_url: `${origin}/mcp` },
      { id: 'acting', remote_url: `${origin}/mcp`, auth: { kind: 'user_oauth', provider: 'local' } },
    ],
    // Closed by us, after Switchboard.
    database: () => Promise.resolve({ ...database, close: () => Promise.resolve() }),
    env: {
      LOG_LEVEL: 'warn',
      SWITCHBOARD_RATE_LIMIT: 'off',
      SWITCHBOARD_PROVIDERS: JSON.stringify({
        local: {
          issuer: idp.issuer,
          client_id: idp.clientId,
          client_secret: idp.clientSecret,
          allowed_origins: [origin],
        },
      }),
    },
  });

const { sizes, json } = readSizes('bench:identity', DEFAULTS);
const databases: [name: string, open: () => Promise<OpenDatabase>][] = [['PGlite', () => openDatabase()]];
const url = process.env['DATABASE_URL'];
if (url !== undefined) databases.push(['Postgres', () => openOnServer(url)]);
for (const [name, open] of databases) {
  const result = await measure(name, await open(), sizes);
  if (json) console.log(JSON.stringify(result));
  else printFacts(result);
}
