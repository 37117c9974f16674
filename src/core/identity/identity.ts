import type { Config } from '../../config/index.ts';
import type { Clock } from '../../platform/time.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../metrics.ts';
import type { Guard } from '../../platform/outbound/guard.ts';
import { createGuardedFetch } from '../../platform/outbound/fetch.ts';
import { Sealing } from '../../platform/sealing.ts';
import type { Caller } from '../access/caller.ts';
import type { ApiKeys } from '../access/api-keys.ts';
import type { Audit } from '../access/audit.ts';
import type { IdentityContext } from './context.ts';
import { UserCalls } from './calls.ts';
import { Connections } from './connections/connections.ts';
import { Credentials } from './connections/credentials.ts';
import { Grants } from './grants/grants.ts';
import { IdentityTokens, SigningKeys } from './tokens/identity-token.ts';
import { accessFor, Holdings, type AccessOf } from './connections/holdings.ts';
import { Manage } from './manage.ts';
import { openVault } from './vault/open.ts';
import { Outbox } from './connections/revocation-outbox.ts';
import { Provider } from './connections/provider.ts';
import { Providers } from './connections/providers.ts';
import { ServerAuthorization } from './oauth/server-authorization.ts';
import { RefreshTokens } from './tokens/refresh-tokens.ts';
import { Retention } from './retention.ts';
import { Revocations } from './connections/revocations.ts';
import { Sessions } from './sign-in/sessions.ts';
import { PageSignIns } from './sign-in/page-sign-in.ts';
import { Setup } from './setup.ts';
import { SignIns } from './sign-in/sign-in.ts';
import { requireUnused, rewrap } from './vault/rewrap.ts';
import { Webhooks } from './webhooks/webhooks.ts';

/** Limits a provider's response; its key set is the largest. */
const MAX_ANSWER_BYTES = 1024 * 1024;
/** Limits responses of authorization servers that catalogued servers name. */
const MAX_METADATA_BYTES = 64 * 1024;
const METADATA_MS = 5_000;

/** The parts of identity, which act for end users. */
export interface Identity {
  readonly sessions: Sessions;
  readonly signIns: SignIns;
  readonly refreshTokens: RefreshTokens;
  readonly tokens: IdentityTokens;
  readonly credentials: Credentials;
  readonly connections: Connections;
  readonly manage: Manage;
  readonly pageSignIns: PageSignIns;
  readonly calls: UserCalls;
  /** Sign-ins of MCP clients; undefined if these cannot sign in. */
  readonly grants: Grants | undefined;
  readonly setup: Setup;
  readonly signingKeys: SigningKeys;
  readonly retention: Retention;
  readonly providers: Providers;
  /** Seals with the keys of the vault. */
  readonly sealing: Sealing;
  readonly revocations: Revocations;
  readonly holdings: Holdings;
  readonly webhooks: Webhooks;
  readonly authorization: ServerAuthorization;
  /** Says how servers let a caller in: see `accessFor`. */
  accessFor(this: void, caller: Caller): Promise<AccessOf>;
  readonly context: IdentityContext;
  /** Operators' commands on the keys of the vault. */
  readonly vaultKeys: { rewrap(): Promise<number>; requireUnused(keyId: string): Promise<void> };
  /** Starts the background work. */
  start(): void;
  close(): Promise<void>;
}

interface IdentityOptions {
  readonly db: Database;
  readonly log: Log;
  readonly metrics?: Metrics;
  readonly audit: Audit;
  readonly apiKeys: ApiKeys;
  /** Undefined: MCP clients cannot sign in. */
  readonly signIn: Config['mcp']['signIn'];
  readonly clock: Clock;
  readonly config: Config['identity'];
  readonly dataDir: string;
  readonly guard: Guard;
  readonly publicUrl: () => string;
}

/** Opens identity. @throws WrongKeys, KeyFileError if the keys do not match the database */
export async function createIdentity(options: IdentityOptions): Promise<Identity> {
  const { db, log, metrics, audit, apiKeys, clock, config, guard, publicUrl } = options;
  const { vault, keks } = await openVault(options);
  const signingKeys = new SigningKeys({ db, vault, clock });
  await signingKeys.prepare();

  const outbound = createGuardedFetch(guard, MAX_ANSWER_BYTES);
  const configured = new Map<string, Provider>();
  for (const settings of config.providers.values()) {
    const { name, client } = settings;
    if (client) configured.set(name, new Provider({ ...settings, client }, { fetch: outbound.fetch, clock }));
  }
  const providers = new Providers(config.providers, configured);
  const outbox = new Outbox({ db, vault, providers, audit, log });
  const webhooks = new Webhooks({ db, vault, audit, clock, log, metrics, guard });
  const { events } = webhooks;
  const context: IdentityContext = {
    db,
    vault,
    audit,
    outbox,
    events,
    clock,
    log,
    metrics,
    providers,
    publicUrl,
  };

  const tokens = new IdentityTokens({ keys: signingKeys, clock, publicUrl });
  const small = createGuardedFetch(guard, MAX_METADATA_BYTES, METADATA_MS);
  const authorization = new ServerAuthorization({ context, config: config.oauth, fetch: small.fetch, guard });
  outbox.findIssuers(issuedTo => authorization.at(issuedTo));
  const sessions = new Sessions(context, authorization);
  const connections = new Connections(context);
  const holdings = new Holdings(db, clock);
  const revocations = new Revocations(context, connections, { holdings, keys: apiKeys });
  const credentials = new Credentials({ context, connections, sessions, holdings, authorization });
  const retention = new Retention(context, signingKeys);
  const accessOf = accessFor.bind(undefined, holdings, { providers, authorization });
  const calls = new UserCalls({ db, clock, log });
  const manage = new Manage({
    context,
    connections,
    revocations,
    sessions,
    calls,
    apiKeys,
    accessFor: accessOf,
  });
  const sealing = new Sealing(keks, clock);
  const admit = manage.admit.bind(manage);
  return {
    sessions,
    signIns: new SignIns({ context, connections, authorization, holdings }),
    refreshTokens: new RefreshTokens(context, tokens, config),
    tokens,
    credentials,
    connections,
    revocations,
    holdings,
    webhooks,
    authorization,
    accessFor: accessOf,
    context,
    manage,
    pageSignIns: new PageSignIns({ context, sealing, admit }),
    calls,
    grants: options.signIn
      ? new Grants({
          context,
          apiKeys,
          keys: signingKeys,
          sealing,
          fetch: small.fetch,
          guard,
          external: options.signIn.external,
          refreshRaceMs: config.refreshRaceMs,
        })
      : undefined,
    setup: new Setup({ context, config, authorization }),
    signingKeys,
    retention,
    providers,
    sealing,
    vaultKeys: {
      rewrap: () => rewrap(db, vault),
      requireUnused: keyId => requireUnused(db, vault, keyId),
    },
    start() {
      outbox.start();
      webhooks.start();
      retention.start();
    },
    async close() {
      await Promise.all([
        retention.close(),
        outbox.close(),
        webhooks.close(),
        credentials.close(),
        calls.close(),
      ]);
      await Promise.all([outbound.close(), small.close()]);
    },
  };
}
