import { SwitchboardError } from '../../../errors.ts';
import { newNonce, newSecret } from '../../../platform/ids.ts';
import type { SignInMode } from '../../access/caller.ts';
import type { ServerHead } from '../../catalogue/entry.ts';
import { targetOf } from '../connections/holdings.ts';
import { ProviderError, type Proof, type Provider } from '../connections/provider.ts';
import type { IdentityContext } from '../context.ts';
import type { ServerAuthorization, ServerSignIn } from '../oauth/server-authorization.ts';

/** The goal of a session: an account at a provider or at a server's authorization server, or the values that a server takes. */
export interface Goal {
  /** The provider's name, or the server's target. */
  readonly name: string;
  readonly resource: string;
  readonly scopes: readonly string[];
  readonly provider?: Provider;
  readonly signIn?: ServerSignIn;
}

/** A session that is not stored yet. */
export interface Draft extends Proof, Kept {
  readonly goal: Goal;
  readonly mode: SignInMode;
  readonly sessionId: string;
  readonly ticket: string | undefined;
  readonly providerUrl: string;
  readonly authUrl: string;
}

/** Options that are stored with a session until its browser comes back. */
interface Kept {
  readonly forUsers?: boolean | undefined;
  readonly expectedAccount?: string | undefined;
}

/** Returns the goal of an account at a provider, with the scopes that the provider's settings name, too. */
export function goalAtProvider(wanted: {
  provider: Provider;
  scopes: readonly string[];
  resource: string;
}): Goal {
  const { name, scopes } = wanted.provider.settings;
  return { ...wanted, name, scopes: [...new Set([...scopes, ...wanted.scopes])] };
}

/** Finds out what sessions connect, and where their browsers go for it. */
export class Goals {
  readonly #context: IdentityContext;
  readonly #authorization: ServerAuthorization;

  constructor(context: IdentityContext, authorization: ServerAuthorization) {
    this.#context = context;
    this.#authorization = authorization;
  }

  /**
   * Returns the goal of connecting a server: a sign-in or, where it has no authorization server, values.
   * @throws SwitchboardError as `ServerAuthorization.prepare`
   */
  async atServer(server: ServerHead, wanted: Parameters<ServerAuthorization['prepare']>[1]): Promise<Goal> {
    const { provider: name, resource } = targetOf(server);
    const signIn =
      server.auth.kind === 'static_header' ? undefined : await this.#authorization.prepare(server, wanted);
    return { name, resource, scopes: signIn?.scopes ?? [], ...(signIn ? { signIn } : {}) };
  }

  /** Drafts a session with a goal. @throws SwitchboardError `unavailable` if the provider's metadata cannot be read */
  async draft(
    goal: Goal,
    mode: SignInMode,
    { loginHint, ...kept }: Kept & { readonly loginHint?: string | undefined } = {},
  ): Promise<Draft> {
    const { resource, scopes, provider, signIn } = goal;
    const secrets = { state: newNonce(), nonce: newNonce(), verifier: newNonce() };
    const wanted = { ...secrets, mode, scopes, resource, loginHint };
    const atServer = (await signIn?.authorizationUrl(secrets)) ?? '';
    const providerUrl = provider ? await this.#authorizationUrl(provider, wanted) : atServer;
    // At an identity provider, mode `caller` needs no page of ours: the app confirms.
    const ticket = mode === 'page' || !provider ? newSecret('link') : undefined;
    return {
      ...secrets,
      ...kept,
      goal,
      mode,
      sessionId: newSecret('ses'),
      ticket,
      providerUrl,
      authUrl: ticket === undefined ? providerUrl : `${this.#context.publicUrl()}/connect/${ticket}`,
    };
  }

  async #authorizationUrl(
    provider: Provider,
    wanted: Omit<Parameters<Provider['authorizationUrl']>[0], 'redirectUri'>,
  ): Promise<string> {
    const { name, issuer } = provider.settings;
    const redirectUri = `${this.#context.publicUrl()}/oauth/callback/${name}`;
    try {
      return await provider.authorizationUrl({ ...wanted, redirectUri });
    } catch (cause) {
      if (!(cause instanceof ProviderError)) throw cause;
      this.#context.log.warn(
        { err: cause, provider: name, issuer },
        'failed to read identity provider metadata',
      );
      throw new SwitchboardError(
        'unavailable',
        `The identity provider ${name} is unavailable: its metadata could not be read. Try again soon. If the problem persists, the log has the reason.`,
        { retryAfterSec: 5, cause },
      );
    }
  }
}
