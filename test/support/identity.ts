import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, beforeEach, inject } from 'vitest';
import { generateApiKey } from '../../src/core/access/key-text.ts';
import { SCOPES } from '../../src/core/access/caller.ts';
import { apiKeys, tenants } from '../../src/core/access/schema.ts';
import type { Clock } from '../../src/platform/time.ts';
import { rows, type Database, type OpenDatabase } from '../../src/platform/database/database.ts';
import { openTestDatabase } from './database.ts';
import { openPostgres } from '../../src/platform/database/postgres.ts';
import type { StartOptions } from '../../src/app.ts';
import { providerSettings, startIdentityProvider, type IdentityProvider } from './identity-provider.ts';
import { databasesOfRun } from './full-run.ts';
import { createDatabase } from './postgres.ts';
import {
  startTestSwitchboard,
  type Answer,
  type CatalogueLine,
  type RunningSwitchboard,
} from './switchboard.ts';
import { actingForUsers, startAuthorised, type AuthorisedServer } from './upstreams/authorised.ts';
import { UserAgent, type SignedIn } from './user-agent.ts';

/** For `describe.each`: both databases. Postgres is skipped where none is installed. */
export const BOTH_DATABASES = [
  { name: 'PGlite', kind: 'pglite', skipped: false },
  { name: 'Postgres', kind: 'postgres', skipped: inject('postgresUrl') === undefined },
] as const;
export type DatabaseKind = (typeof BOTH_DATABASES)[number]['kind'];

export const DATABASES = databasesOfRun<(typeof BOTH_DATABASES)[number]>(BOTH_DATABASES);

export interface TokenSet {
  readonly access_token: string;
  readonly refresh_token: string;
  readonly expires_in: number;
  readonly token_type: string;
}

export interface IdentityUnderTest extends RunningSwitchboard {
  readonly idp: IdentityProvider;
  readonly db: Database;
  readonly databaseUrl: string | undefined;
  /** A key of another tenant, `other`. */
  readonly otherKey: string;
  /** Lets time pass, for the database's clock and for the program's. */
  elapse(ms: number): Promise<void>;
  /** By the program's clock, in milliseconds. */
  now(): number;
  /** `POST /v1/identity/sessions` with the provider `local`. */
  createSession(userId: string, more?: object, headers?: Record<string, string>): Promise<Answer>;
  poll(sessionId: string, headers?: Record<string, string>): Promise<Answer>;
  token(sessionId: string, headers?: Record<string, string>): Promise<Answer>;
  refresh(refreshToken: string, headers?: Record<string, string>): Promise<Answer>;
  revoke(userId: string, headers?: Record<string, string>): Promise<Answer>;
  /** A new browser signs in at the provider and comes back to the callback, which is not fetched. */
  authorize(authUrl: string, options?: SignInOptions): Promise<string>;
  /** As `authorize`, and follows the callback to the page it ends on. */
  signIn(authUrl: string, options?: SignInOptions): Promise<SignedIn>;
  /** The whole of it: session, sign-in, first tokens. The login is the user's id. */
  connect(
    userId: string,
    options?: { login?: string; session?: object },
  ): Promise<TokenSet & { sessionId: string }>;
  /** The headers of a call for a user. */
  as(tokens: { readonly access_token: string }): Record<string, string>;
}

interface SignInOptions {
  readonly login?: string;
  readonly deny?: boolean;
  readonly agent?: UserAgent;
}

export interface StartIdentity {
  readonly database?: DatabaseKind;
  readonly catalogue?: readonly CatalogueLine[];
  /** Origins of upstreams that may get the provider's tokens. */
  readonly allowedOrigins?: readonly string[];
  /** Of `SWITCHBOARD_PROVIDERS`, over those of the provider `local`. */
  readonly provider?: object;
  /** More providers than `local`. */
  readonly providers?: object;
  readonly env?: Record<string, string>;
  readonly proxyLimits?: StartOptions['proxyLimits'];
  readonly idp?: Parameters<typeof startIdentityProvider>[0];
  /** Two Switchboards on one database: the first one's. */
  readonly databaseUrl?: string;
}

/** A Switchboard in this process with a real identity provider (`local`), on PGlite or a database of its own on Postgres. */
export async function startIdentity(options: StartIdentity = {}): Promise<IdentityUnderTest> {
  await using opened = new AsyncDisposableStack();
  const idp = opened.use(await startIdentityProvider(options.idp));
  const clock = new TestClock();
  const storage = await openStorage(options.database ?? 'pglite');
  opened.defer(() => storage.close());
  const sb = opened.use(
    await startTestSwitchboard({
      ...(options.catalogue === undefined ? {} : { catalogue: options.catalogue }),
      // What these tests count is what calls send: no listings after them.
      proxyLimits: { toolRefreshIntervalMs: Infinity, ...options.proxyLimits },
      clock,
      // Closed by us, after Switchboard: tests look into it.
      database: () => Promise.resolve({ ...storage, close: () => Promise.resolve() }),
      env: { ...environmentFor(idp, options), ...options.env },
    }),
  );
  idp.allowRedirect(`${sb.url}/oauth/callback/local`);
  const otherKey = await createOtherTenant(storage.db);
  const stack = opened.move();
  return {
    ...actions(sb, idp, otherKey),
    ...timeOf(storage.db, clock),
    db: storage.db,
    databaseUrl: storage.url,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

/** Starts a Switchboard for the tests of a `describe`, and skips them where the database is missing. */
export function useIdentity(
  { kind, skipped }: (typeof BOTH_DATABASES)[number],
  onStart: (sb: IdentityUnderTest) => void,
  options: Omit<StartIdentity, 'database'> = {},
): void {
  let sb: IdentityUnderTest | undefined;
  beforeAll(async () => {
    if (skipped) return;
    sb = await startIdentity({ ...options, database: kind });
    onStart(sb);
  });
  afterAll(() => sb?.[Symbol.asyncDispose]());
  beforeEach(ctx => {
    if (skipped) ctx.skip();
  });
}

export interface MailUnderTest extends IdentityUnderTest {
  readonly upstream: AuthorisedServer;
  /** Calls the tool `echo` of `mail`. */
  echo(message: string, headers: Record<string, string>): Promise<Answer>;
}

/** The same with one server, `mail`, which takes the token of the user it is called for. */
export async function startMail(database: DatabaseKind): Promise<MailUnderTest> {
  await using opened = new AsyncDisposableStack();
  const upstream = opened.use(await startAuthorised('legacy'));
  const sb = opened.use(
    await startIdentity({
      database,
      catalogue: [actingForUsers('mail', upstream.url)],
      allowedOrigins: [upstream.origin],
    }),
  );
  const stack = opened.move();
  return {
    ...sb,
    upstream,
    echo: (message, headers) =>
      sb.post('/v1/mcp/tools/call', { server_id: 'mail', name: 'echo', arguments: { message } }, headers),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

/** The environment with which a Switchboard knows the provider `local`. */
export const environmentFor = (
  idp: IdentityProvider,
  options: StartIdentity = {},
): Record<string, string> => ({
  SWITCHBOARD_PROVIDERS: JSON.stringify({
    local: {
      ...providerSettings(idp),
      title: 'Local Provider',
      allowed_origins: options.allowedOrigins ?? [],
      ...options.provider,
    },
    ...options.providers,
  }),
});

function actions(sb: RunningSwitchboard, idp: IdentityProvider, otherKey: string) {
  const post = (path: string, body: unknown, headers?: Record<string, string>) =>
    sb.post(path, body, headers);
  const isCallback = (url: string) => url.startsWith(`${sb.url}/`);
  const authorize = (
    authUrl: string,
    { login = 'alice', deny = false, agent = new UserAgent() }: SignInOptions = {},
  ) => agent.authorize(authUrl, { login, deny, stopAt: isCallback });
  const signIn = (
    authUrl: string,
    { login = 'alice', deny = false, agent = new UserAgent() }: SignInOptions = {},
  ) => agent.signIn(authUrl, { login, deny, stopAt: isCallback });
  const createSession = (userId: string, more: object = {}, headers?: Record<string, string>) =>
    post('/v1/identity/sessions', { user_id: userId, provider: 'local', ...more }, headers);
  const token = (sessionId: string, headers?: Record<string, string>) =>
    post('/v1/identity/token', { session_id: sessionId }, headers);
  return {
    ...sb,
    idp,
    otherKey,
    createSession,
    token,
    authorize,
    signIn,
    poll: (sessionId: string, headers?: Record<string, string>) =>
      sb.get(`/v1/identity/sessions/${sessionId}`, headers),
    refresh: (refreshToken: string, headers?: Record<string, string>) =>
      post('/v1/identity/refresh', { refresh_token: refreshToken }, headers),
    revoke: (userId: string, headers?: Record<string, string>) =>
      post('/v1/identity/revoke', { user_id: userId }, headers),
    async connect(
      userId: string,
      { login = userId, session = {} }: { login?: string; session?: object } = {},
    ) {
      const created = await createSession(userId, session);
      if (created.status !== 200) throw new Error(`no session: ${created.text}`);
      const { session_id: sessionId, auth_url: authUrl } = created.json as {
        session_id: string;
        auth_url: string;
      };
      await signIn(authUrl, { login });
      const tokens = await token(sessionId);
      if (tokens.status !== 200) throw new Error(`no tokens: ${tokens.text}`);
      return { ...(tokens.json as TokenSet), sessionId };
    },
    as: (tokens: { readonly access_token: string }) => ({ authorization: `Bearer ${tokens.access_token}` }),
  };
}

class TestClock implements Clock {
  #aheadMs = 0;
  now(): number {
    return Date.now() + this.#aheadMs;
  }
  advance(ms: number): void {
    this.#aheadMs += ms;
  }
}

/** Columns that the program's own clock writes or is compared with: that clock is set ahead instead. */
const BY_PROGRAM_CLOCK = new Set([
  'api_keys.expires_at',
  'api_keys.last_used_at',
  'kept_results.expires_at',
  'kept_result_parts.expires_at',
  'oauth_clients.secret_expires_at',
  'user_calls.minute',
  'user_calls.last_at',
]);

/** Time passes for the database by moving every instant in it into the past. */
function timeOf(db: Database, clock: TestClock) {
  return {
    now: () => clock.now(),
    async elapse(ms: number): Promise<void> {
      const instants = await rows<{ table_name: string; column_name: string }>(
        db,
        sql`select table_name, column_name from information_schema.columns where table_schema = 'public' and data_type = 'timestamp with time zone'`,
      );
      for (const { table_name, column_name } of instants) {
        if (BY_PROGRAM_CLOCK.has(`${table_name}.${column_name}`)) continue;
        const column = sql.identifier(column_name);
        await db.execute(
          sql`update ${sql.identifier(table_name)} set ${column} = ${column} - make_interval(secs => ${ms / 1000}) where ${column} is not null`,
        );
      }
      clock.advance(ms);
    },
  };
}

async function openStorage(kind: DatabaseKind): Promise<OpenDatabase & { url: string | undefined }> {
  if (kind === 'pglite') return { ...(await openTestDatabase()), url: undefined };
  const database = await createDatabase();
  const opened = await openPostgres(database.url);
  return {
    ...opened,
    url: database.url,
    close: () => opened.close().then(() => database[Symbol.asyncDispose]()),
  };
}

async function createOtherTenant(db: Database): Promise<string> {
  const { id, key, hash } = generateApiKey();
  await db.insert(tenants).values({ id: 'other' });
  await db
    .insert(apiKeys)
    .values({ id, hash, tenantId: 'other', name: 'of another tenant', scopes: [...SCOPES] });
  return key;
}
