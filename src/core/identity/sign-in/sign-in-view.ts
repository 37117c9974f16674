import { eq } from 'drizzle-orm';
import { PAGE_KEY_ID } from '../../access/caller.ts';
import { tenants, users } from '../../access/schema.ts';
import { TENANT_HOLDER } from '../../access/tenants.ts';
import { isConnectionOf } from '../connections/connections.ts';
import { serverIdOf } from '../connections/holdings.ts';
import type { IdentityContext } from '../context.ts';
import { connections } from '../schema.ts';
import {
  errorOf,
  isBrowserOf,
  isMadeBy,
  pendingSecrets,
  sessionOfResult,
  sessionOfTicket,
  waitingSecrets,
  type ResultSession,
  type SessionError,
  type SessionRow,
} from './session-store.ts';

/** Names for a page about a sign-in. */
export interface SignInView {
  /** The name of the tenant; undefined if it has none. */
  readonly app: string | undefined;
  /** The tenant's id. */
  readonly tenant: string;
  /** The app's own id for the user; undefined: the tenant itself, which shares the connection. */
  readonly user: string | undefined;
  /** The provider's title, or the id of the server. */
  readonly provider: string;
  /** The server that is connected; undefined for a sign-in with a provider. */
  readonly serverId: string | undefined;
  /** True if the user asked for it on the page of connections. */
  readonly isOfPage: boolean;
  readonly scopes: readonly string[];
}

export interface ResultView extends SignInView {
  /** `confirm`: the sign-in waits for confirmation, in the browser in which it started. */
  readonly state: 'confirm' | 'complete' | 'error';
  readonly account?: string | undefined;
  readonly error: SessionError | undefined;
  readonly canUndo: boolean;
  readonly returnUrl: string | undefined;
}

/** Data of the page shown before the provider's. */
export interface LinkView extends SignInView {
  /** The authorization server at which the user signs in; undefined for other providers, and for values. */
  readonly issuer: string | undefined;
  /** The origin that the page's form leads to, for its Content-Security-Policy; undefined if it leads to us. */
  readonly providerOrigin: string | undefined;
  /** The scopes that an earlier sign-in was granted. */
  readonly granted: readonly string[];
  /** True for a shared connection that calls for users use, too. */
  readonly forUsers: boolean;
  /** The origin of the app, at which a sign-in of mode `caller` ends. */
  readonly appOrigin: string | undefined;
}

/** Returns undefined if the link has expired, or is for another browser. */
export async function viewLink(
  context: IdentityContext,
  ticket: string,
  browser: string | undefined,
): Promise<LinkView | undefined> {
  const session = await sessionOfTicket(context, ticket, browser);
  if (!session) return undefined;
  const view = await describe(context, session);
  const { providerUrl, atServer } = await pendingSecrets(context, session);
  const providerOrigin = providerUrl === '' ? undefined : new URL(providerUrl).origin;
  const { mode, returnUrl } = session;
  const held = await heldBy(context, session);
  return {
    ...view,
    issuer: atServer?.issuedTo.issuer,
    providerOrigin,
    appOrigin: mode === 'caller' && returnUrl !== null ? new URL(returnUrl).origin : undefined,
    granted: held?.status === 'active' ? held.scopes : [],
    forUsers: atServer?.forUsers ?? held?.forUsers ?? false,
  };
}

/** Returns undefined if there is no such result, or if it waits for confirmation in another browser. */
export async function viewResult(
  context: IdentityContext,
  result: string,
  browser: string | undefined,
): Promise<ResultView | undefined> {
  const session = await sessionOfResult(context, result);
  if (!session || !isShown(session, browser)) return undefined;
  const { status: state } = session;
  const shown = await accountOf(context, session);
  return {
    ...(await describe(context, session)),
    ...shown,
    state,
    error: state === 'error' ? errorOf(session.errorCode) : undefined,
    canUndo: state === 'complete' && shown !== undefined && session.undoable,
    returnUrl: session.returnUrl ?? undefined,
  };
}

/** A sign-in that waits for confirmation is shown only in its own browser, and only while it can be confirmed. */
function isShown(
  session: ResultSession,
  browser: string | undefined,
): session is ResultSession & { status: 'confirm' | 'complete' | 'error' } {
  if (session.status === 'confirm') return !session.over && isBrowserOf(session, browser);
  return session.status === 'complete' || session.status === 'error';
}

/** Returns the account of the sign-in, with its scopes; undefined if there is none any more. */
async function accountOf(context: IdentityContext, session: SessionRow) {
  const waiting = await waitingSecrets(context, session);
  if (waiting) return { account: waiting.account.label, scopes: waiting.grant.scopes };
  const connection = session.status === 'complete' ? await connectionOf(context, session) : undefined;
  return connection && { account: connection.account ?? undefined, scopes: connection.scopes };
}

async function describe(context: IdentityContext, session: SessionRow): Promise<SignInView> {
  const serverId = serverIdOf(session.provider);
  const [names] = await context.db
    .select({ app: tenants.name, user: users.externalId })
    .from(users)
    .innerJoin(tenants, eq(tenants.id, users.tenantId))
    .where(eq(users.id, session.userId));
  return {
    app: names?.app ?? undefined,
    tenant: session.tenantId,
    user: names?.user === TENANT_HOLDER ? undefined : (names?.user ?? ''),
    provider: serverId ?? context.providers.titleOf(session.provider),
    serverId,
    isOfPage: session.apiKeyId === PAGE_KEY_ID,
    scopes: session.scopes,
  };
}

/** Returns the connection that the sign-in would renew. */
async function heldBy(context: IdentityContext, session: SessionRow) {
  const [held] = await context.db
    .select({
      scopes: connections.scopes,
      status: connections.status,
      forUsers: connections.forUsers,
    })
    .from(connections)
    .where(isConnectionOf(session));
  return held;
}

/** Returns the connection that a sign-in has made; undefined if it has ended, or a later one has renewed it. */
async function connectionOf(context: IdentityContext, session: SessionRow) {
  const { connectionId } = session;
  if (connectionId === null) return undefined;
  const [connection] = await context.db
    .select({ account: connections.account, scopes: connections.scopes, signIn: connections.signIn })
    .from(connections)
    .where(eq(connections.id, connectionId));
  return connection && isMadeBy(session, connection) ? connection : undefined;
}
