import { ConfigError, isHttps, LOOPBACK_NAMES, setting, someText } from './setting.ts';
import type { z } from 'zod';

/** How MCP clients that send no key let their users sign in. */
export interface SignInConfig {
  /** The address below which clients connect. */
  readonly publicUrl: string;
}

export const signInSettings = {
  SWITCHBOARD_MCP_SIGN_IN: setting(
    someText.optional(),
    'Whether MCP clients can connect by the address alone, and their users sign in: `on` or `off` ([mcp-sign-in.md](mcp-sign-in.md)).',
    '`on` if `PUBLIC_URL` is https or on loopback',
  ),
};
type Settings = z.output<z.ZodObject<typeof signInSettings>>;

/** Returns undefined if it is off. @throws ConfigError */
export function readSignIn(
  { SWITCHBOARD_MCP_SIGN_IN: value }: Settings,
  publicUrl: string | undefined,
): SignInConfig | undefined {
  const refuse = (why: string) => new ConfigError(`SWITCHBOARD_MCP_SIGN_IN: ${why}`);
  if (value === 'off') return undefined;
  if (value !== undefined && value !== 'on') throw refuse('must be on or off');
  if (publicUrl !== undefined && (isHttps(publicUrl) || LOOPBACK_NAMES.includes(new URL(publicUrl).hostname)))
    return { publicUrl: publicUrl.replace(/\/+$/, '') };
  if (value === 'on')
    throw refuse(
      'requires a PUBLIC_URL that is https or on loopback, because codes and tokens are sent to it',
    );
  return undefined;
}
