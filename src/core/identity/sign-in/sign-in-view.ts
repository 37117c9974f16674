import { eq } from 'drizzle-orm';
import { tenants, users } from '../../access/schema.ts';
import type { IdentityContext } from '../context.ts';
import { connections } from '../schema.ts';
import {
  errorOf,
  isBrowserOf,
  pendingSecrets,
  sessionOfResult,
  sessionOfTicket,
  waitingSecrets,
  type SessionError,
  type SessionRow,
} from './session-store.ts';

/** What a page about a sign-in names. */
export interface SignInView {
  /** The app that asked, as its tenant is called; undefined where it has no name. */
  readonly app: string | undefined;
  /** The app's own id of the user. */
  readonly user: string;
  /** The provider's title. */
  readonly provider: string;
  readonly scopes: readonly string[];
}

export interface ResultView extends SignInView {
  /** `confirm`: waits for the user's click, in the browser in which it began. */
  readonly state: 'confirm' | 'complete' | 'error';
  readonly account?: string | undefined;
  readonly error: SessionError | undefined;
  readonly canUndo: boolean;
  readonly returnUrl: string | undefined;
}

/** What the page behind a link says before the user goes on to the provider. */
export interface LinkView extends SignInView {
  /** For the page's content security policy: where its form leads. */
  readonly providerOrigin: string;
}

export async function viewLink(context: IdentityContext, ticket: string): Promise<LinkView | undefined> {
  const session = await sessionOfTicket(context, ticket);
  if (!session) return undefined;
  const { providerUrl } = await pendingSecrets(context, session);
  return { ...(await describe(context, session)), providerOrigin: new URL(providerUrl).origin };
}

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

type Found = NonNullable<Awaited<ReturnType<typeof sessionOfResult>>>;

/** A sign-in that waits for its click is shown in its own browser alone, and while the click still counts. */
function isShown(
  session: Found,
  browser: string | undefined,
): session is Found & { status: 'confirm' | 'complete' | 'error' } {
  if (session.status === 'confirm') return !session.over && isBrowserOf(session, browser);
  return session.status === 'complete' || session.status === 'error';
}

/** The account signed in to, with its scopes; undefined when there is none, or no longer. */
async function accountOf(context: IdentityContext, session: SessionRow) {
  const waiting = await waitingSecrets(context, session);
  if (waiting) return { account: waiting.account.label, scopes: waiting.grant.scopes };
  const connection = session.status === 'complete' ? await connectionOf(context, session) : undefined;
  return connection && { account: connection.account ?? undefined, scopes: connection.scopes };
}

async function describe(context: IdentityContext, session: SessionRow): Promise<SignInView> {
  const [names] = await context.db
    .select({ app: tenants.name, user: users.externalId })
    .from(users)
    .innerJoin(tenants, eq(tenants.id, users.tenantId))
    .where(eq(users.id, session.userId));
  return {
    app: names?.app ?? undefined,
    user: names?.user ?? '',
    provider: context.providers.titleOf(session.provider),
    scopes: session.scopes,
  };
}

async function connectionOf(context: IdentityContext, { connectionId }: SessionRow) {
  if (connectionId === null) return undefined;
  const [connection] = await context.db
    .select({ account: connections.account, scopes: connections.scopes })
    .from(connections)
    .where(eq(connections.id, connectionId));
  return connection;
}
