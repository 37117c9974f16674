import { and, asc, eq, isNotNull } from 'drizzle-orm';
import { PLAIN_NAME } from '../../../config/setting.ts';
import { SwitchboardError } from '../../../errors.ts';
import { newNonce } from '../../../platform/ids.ts';
import type { Sealing } from '../../../platform/sealing.ts';
import type { Actor } from '../../access/audit.ts';
import { tenants } from '../../access/schema.ts';
import { ensureUser, findUser, isUserId, type User } from '../../access/tenants.ts';
import { ProviderError, type Account, type Proof, type Provider } from '../connections/provider.ts';
import type { IdentityContext } from '../context.ts';
import { hasRepeated } from './sign-in.ts';

/** The time that a user has at the provider. */
const SIGN_IN_MS = 300_000;
const PURPOSE = 'page-sign-in';
/** Enough to know who it is. Nothing else is asked for, and no token is kept. */
const SCOPES = ['openid', 'email'];

/** The facts on the page before the provider's. */
export interface PageSignInView {
  readonly app: string | undefined;
  /** The provider's title. */
  readonly provider: string;
  readonly providerOrigin: string;
}

/** A sign-in that has begun, in a cookie of its browser. */
interface Begun extends Proof {
  /** Absent: any tenant whose rule the user meets. */
  readonly tenantId?: string | undefined;
  readonly provider: string;
  /** The path of ours where the user goes on; absent: the page of connections. */
  readonly next?: string | undefined;
}

/** By whom users of a tenant are told, and by what. */
interface Rule {
  readonly tenantId: string;
  readonly app: string | undefined;
  readonly provider: Provider;
  readonly claim: 'email' | 'sub';
  /** Users with an address at this domain are created. */
  readonly domain: string | undefined;
}

type Entered = (
  | {
      readonly kind: 'entered';
      /** The secret of the browser that may now see the page. */
      readonly browser: string;
    }
  | {
      readonly kind: 'refused';
      readonly reason: 'page_sign_in_failed' | 'page_sign_in_unknown' | 'page_sign_in_several';
    }
) & { readonly next: string | undefined };

/** A provider that a user can choose without a link. */
export interface SignInChoice {
  readonly name: string;
  readonly title: string;
  readonly origin: string;
}

interface Parts {
  readonly context: IdentityContext;
  readonly sealing: Pick<Sealing, 'seal' | 'open'>;
  /** Opens the page of a user for one browser. Returns the secret of that browser; undefined if the sign-in has opened it before. */
  readonly admit: (
    user: User & { readonly tenantId: string },
    actor: Actor,
    signIn: { readonly provider: string; readonly state: string },
  ) => Promise<string | undefined>;
}

/**
 * The way to the page of connections without a link: users sign in at the provider that the operator has named for the tenant, where
 * the claim that is named with it is their id at the app. It connects nothing and keeps no token, and makes a user only where the
 * operator has named the domain of their addresses.
 */
export class PageSignIns {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /**
   * Checks that users can be told by a provider.
   * @throws SwitchboardError `invalid_request`, `provider_not_configured`
   */
  requireProvider(name: string): void {
    if (this.#parts.context.providers.require(name).settings.issuer !== undefined) return;
    throw new SwitchboardError(
      'invalid_request',
      `sign_in: ${name} is no OpenID provider, so it does not prove who a user is. Use one that has an issuer.`,
    );
  }

  /** Returns undefined if the tenant does not exist, or has no such sign-in. @throws SwitchboardError `unavailable` */
  async view(tenantId: string): Promise<PageSignInView | undefined> {
    const [rule] = await this.#rulesOf({ tenantId });
    if (!rule) return undefined;
    const { origin } = new URL(await this.#urlAt(rule.provider, newProof()));
    return { app: rule.app, provider: rule.provider.settings.title, providerOrigin: origin };
  }

  /** Returns the providers by which users of any tenant are told. */
  async choices(): Promise<readonly SignInChoice[]> {
    const providers = new Set((await this.#rulesOf({})).map(({ provider }) => provider));
    return [...providers].map(({ name, settings: { title, issuer = '' } }) => ({
      name,
      title,
      origin: new URL(issuer).origin,
    }));
  }

  /**
   * Begins a sign-in to a tenant, or by a provider. Returns the provider's page, and what the browser must keep until it comes back;
   * undefined as `view`.
   * @param next the path of ours where the user goes on
   * @throws SwitchboardError `unavailable`
   */
  async begin(
    by: { readonly tenantId: string } | { readonly provider: string },
    next?: string,
  ): Promise<{ readonly url: string; readonly kept: string; readonly keptMs: number } | undefined> {
    const [rule] = await this.#rulesOf(by);
    if (!rule) return undefined;
    const proof = newProof();
    const tenantId = 'tenantId' in by ? by.tenantId : undefined;
    const begun: Begun = { ...proof, tenantId, provider: rule.provider.name, next };
    return {
      url: await this.#urlAt(rule.provider, proof),
      kept: this.#parts.sealing.seal(PURPOSE, [], JSON.stringify(begun), SIGN_IN_MS),
      keptMs: SIGN_IN_MS,
    };
  }

  /**
   * Ends a sign-in after the provider's redirect.
   * @param kept what the browser kept
   * @returns undefined if the browser has begun another sign-in than this one
   */
  async returned(
    providerName: string,
    query: URLSearchParams,
    kept: string | undefined,
    actor: Actor,
  ): Promise<Entered | undefined> {
    const text = kept === undefined ? undefined : this.#parts.sealing.open(PURPOSE, [], kept);
    if (text === undefined) return undefined;
    const begun = JSON.parse(text) as Begun;
    if (begun.provider !== providerName || query.getAll('state').join(' ') !== begun.state) return undefined;
    const { tenantId, provider, next } = begun;
    const rules = await this.#rulesOf(tenantId === undefined ? { provider } : { tenantId });
    const [rule] = rules;
    // The operator may have changed it meanwhile.
    if (rule?.provider.name !== providerName || hasRepeated(query))
      return refused('page_sign_in_failed', next);
    const account = await this.#accountOf(rule.provider, begun, query);
    if (!account) return refused('page_sign_in_failed', next);
    return this.#enter(begun, rules, account, actor);
  }

  async #enter(begun: Begun, rules: readonly Rule[], account: Account, actor: Actor): Promise<Entered> {
    const { provider, next } = begun;
    const { context, admit } = this.#parts;
    const user = await this.#userBy(rules, account);
    const browser = typeof user === 'object' ? await admit(user, actor, begun) : undefined;
    if (browser !== undefined) return { kind: 'entered', browser, next };
    const tenantId = typeof user === 'object' ? user.tenantId : begun.tenantId;
    const ofTenant = tenantId === undefined ? {} : { tenantId };
    const meta = { provider };
    await context.audit.record(actor, { event: 'manage_signed_in', outcome: 'refused', ...ofTenant, meta });
    if (user === 'several') return refused('page_sign_in_several', next);
    return refused(user ? 'page_sign_in_failed' : 'page_sign_in_unknown', next);
  }

  /**
   * Returns the one user that an account is by the rules. An account that is none yet becomes one where a single rule lets in its
   * domain. `several`: it does not say which user, or which tenant, is meant.
   */
  async #userBy(
    rules: readonly Rule[],
    account: Account,
  ): Promise<(User & { readonly tenantId: string }) | 'several' | undefined> {
    const { context } = this.#parts;
    const email = plainAddress(account.email);
    const known = [];
    for (const { tenantId, claim } of rules) {
      const ids = claim === 'sub' ? [account.subject] : [account.email, email];
      const user = await firstKnown(context, tenantId, ids);
      if (user) known.push({ ...user, tenantId });
    }
    if (known.length > 0) return known.length > 1 ? 'several' : known[0];
    const open = rules.filter(({ domain }) => domain !== undefined && email?.endsWith(`@${domain}`));
    const [rule] = open;
    if (!rule || email === undefined || !isUserId(email)) return undefined;
    if (open.length > 1) return 'several';
    const { tenantId } = rule;
    const user = await context.db.transaction(tx => ensureUser(tx, tenantId, email));
    return { ...user, tenantId };
  }

  async #accountOf(provider: Provider, begun: Begun, query: URLSearchParams): Promise<Account | undefined> {
    const { context } = this.#parts;
    try {
      const callback = new URL(`${this.#callbackOf(provider)}?${query.toString()}`);
      return (await provider.exchange(callback, begun, { scopes: SCOPES, resource: '' })).account;
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      const level = error.reason === 'denied' ? 'info' : 'warn';
      context.log[level](
        { err: error, provider: provider.name },
        'failed sign-in to the page of connections',
      );
      return undefined;
    }
  }

  async #rulesOf(by: { readonly tenantId?: string; readonly provider?: string }): Promise<readonly Rule[]> {
    const { db, providers } = this.#parts.context;
    const { tenantId, provider: name } = by;
    if (tenantId !== undefined && !PLAIN_NAME.test(tenantId)) return [];
    const rows = await db
      .select()
      .from(tenants)
      .where(
        and(
          isNotNull(tenants.pageProvider),
          tenantId === undefined ? undefined : eq(tenants.id, tenantId),
          name === undefined ? undefined : eq(tenants.pageProvider, name),
        ),
      )
      .orderBy(asc(tenants.id));
    return rows.flatMap(({ id, name: app, pageProvider, pageClaim: claim, pageDomain }) => {
      const provider = providers.get(pageProvider ?? '');
      if (!claim || provider?.settings.issuer === undefined) return [];
      return { tenantId: id, app: app ?? undefined, provider, claim, domain: pageDomain ?? undefined };
    });
  }

  async #urlAt(provider: Provider, proof: Proof): Promise<string> {
    const redirectUri = this.#callbackOf(provider);
    const wanted = { ...proof, redirectUri, scopes: SCOPES, resource: '', loginHint: undefined };
    try {
      return await provider.authorizationUrl(wanted);
    } catch (cause) {
      if (!(cause instanceof ProviderError)) throw cause;
      const text = `The identity provider ${provider.name} is unavailable. Try again soon.`;
      throw new SwitchboardError('unavailable', text, { retryAfterSec: 5, cause });
    }
  }

  #callbackOf({ name }: Provider): string {
    return `${this.#parts.context.publicUrl()}/oauth/callback/${name}`;
  }
}

const newProof = (): Proof => ({ state: newNonce(), nonce: newNonce(), verifier: newNonce() });

const refused = (
  reason: Extract<Entered, { kind: 'refused' }>['reason'],
  next: string | undefined,
): Entered => ({ kind: 'refused', reason, next });

/** Returns an address with its domain in lower case; undefined if it is none. The provider has verified it. */
function plainAddress(email: string | undefined): string | undefined {
  const [, name, domain] = /^([^@\s]+)@([^@\s]+)$/.exec(email ?? '') ?? [];
  return name === undefined || domain === undefined ? undefined : `${name}@${domain.toLowerCase()}`;
}

/** Finds a user by the claims of a provider, which may be no ids that a user can have. */
async function firstKnown(
  { db }: IdentityContext,
  tenantId: string,
  ids: readonly (string | undefined)[],
): Promise<User | undefined> {
  for (const id of new Set(ids)) {
    const user = id !== undefined && isUserId(id) ? await findUser(db, tenantId, id) : undefined;
    if (user) return user;
  }
  return undefined;
}
