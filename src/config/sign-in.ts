import { z } from 'zod';
import { inWords } from '../platform/zod-issues.ts';
import {
  ConfigError,
  httpUrl,
  isHttps,
  isOnLoopback,
  plainName,
  readJson,
  setting,
  someText,
} from './setting.ts';

/** How MCP clients that send no key let their users sign in. */
export interface SignInConfig {
  /** Undefined: at Switchboard's own authorization server. */
  readonly external: ExternalIssuer | undefined;
}

/** An authorization server of the operator's, whose access tokens are accepted. */
export interface ExternalIssuer {
  readonly issuer: string;
  /** One of them must be in `aud`; undefined: the address of the MCP endpoint must. */
  readonly audiences: readonly string[] | undefined;
  /** The tenant of its users. */
  readonly tenant: string;
  /** The claim that is a user's id there. */
  readonly userClaim: string;
  /** Its names for `mcp:search` and `mcp:call`. */
  readonly scopes: Readonly<Record<'mcp:search' | 'mcp:call', string>>;
}

export const signInSettings = {
  SWITCHBOARD_MCP_SIGN_IN: setting(
    someText.optional(),
    'How users of MCP clients sign in that know only the address: `on` for the sign-in of Switchboard itself, `off`, or JSON (or the path of a JSON file) that names an authorization server of yours ([mcp-sign-in.md](mcp-sign-in.md)).',
    '`on` if `PUBLIC_URL` is https or on loopback',
  ),
};
type Settings = z.output<z.ZodObject<typeof signInSettings>>;

const externalSchema = z.strictObject({
  issuer: httpUrl,
  audience: z.union([z.string().min(1), z.array(z.string().min(1)).min(1)]).optional(),
  tenant: plainName.default('local'),
  user_claim: z.string().min(1).max(100).default('sub'),
  scopes: z
    .strictObject({
      'mcp:search': z.string().min(1).default('mcp:search'),
      'mcp:call': z.string().min(1).default('mcp:call'),
    })
    .default({ 'mcp:search': 'mcp:search', 'mcp:call': 'mcp:call' }),
});

interface Surroundings {
  readonly publicUrl: string | undefined;
  /** Allows plain http, for development. */
  readonly allowHttp: boolean;
}

/** Returns undefined if it is off. @throws ConfigError */
export function readSignIn(
  { SWITCHBOARD_MCP_SIGN_IN: value }: Settings,
  { publicUrl, allowHttp }: Surroundings,
): SignInConfig | undefined {
  if (value === 'off') return undefined;
  const isSafe = publicUrl !== undefined && (isHttps(publicUrl) || isOnLoopback(publicUrl));
  if (value === undefined) return isSafe ? { external: undefined } : undefined;
  if (!isSafe)
    throw refuse('requires a PUBLIC_URL that is https or on loopback, because tokens are sent to it');
  return { external: value === 'on' ? undefined : readExternal(value, allowHttp) };
}

function readExternal(value: string, allowHttp: boolean): ExternalIssuer {
  const parsed = externalSchema.safeParse(
    readJson(value, why => refuse(`is neither on nor off, and ${why}`)),
  );
  if (!parsed.success) throw refuse(inWords(parsed.error.issues.slice(0, 1)));
  const { issuer, audience, tenant, user_claim: userClaim, scopes } = parsed.data;
  if (!isHttps(issuer) && !allowHttp)
    throw refuse('issuer must be https (http only with SWITCHBOARD_ALLOW_PRIVATE_NETWORK=true)');
  const audiences = typeof audience === 'string' ? [audience] : audience;
  return { issuer, audiences, tenant, userClaim, scopes };
}

const refuse = (why: string) => new ConfigError(`SWITCHBOARD_MCP_SIGN_IN: ${why}`);
