/**
 * `npm run idp`: a real OpenID Provider on loopback to try sign-in with, offline; prints the line that starts Switchboard with
 * it. Takes any name and any password. Settings: IDP_PORT (9090), SWITCHBOARD_URL (http://127.0.0.1:8080) that it sends users
 * back to, UPSTREAM_URL (http://127.0.0.1:9091) of the MCP server that may get its tokens.
 */
import { once } from 'node:events';
import { providerSettings, startIdentityProvider } from '../test/support/identity-provider.ts';

const port = Number(process.env['IDP_PORT'] ?? 9090);
const switchboard = process.env['SWITCHBOARD_URL'] ?? 'http://127.0.0.1:8080';
const upstream = process.env['UPSTREAM_URL'] ?? 'http://127.0.0.1:9091';

try {
  const redirectUri = new URL('/oauth/callback/local', switchboard).href;
  await using idp = await startIdentityProvider({
    port,
    redirectUris: [redirectUri],
  });
  const local = {
    ...providerSettings(idp),
    title: 'Local test provider',
    allowed_origins: [new URL(upstream).origin],
  };
  console.log(`Identity provider on ${idp.issuer}: any name, any password (stop with Ctrl-C).`);
  console.log(`It sends users back to ${redirectUri} alone (SWITCHBOARD_URL). Start Switchboard with:`);
  console.log(
    `SWITCHBOARD_PROVIDERS='${JSON.stringify({ local })}' SWITCHBOARD_ALLOW_PRIVATE_NETWORK=true npm start`,
  );
  await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
} catch (error) {
  console.error(`idp: ${reason(error)}`);
  process.exitCode = 1;
}

function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if ('code' in error && error.code === 'EADDRINUSE')
    return `port ${port} is in use; stop what listens there, or choose another with IDP_PORT.`;
  return error.message;
}
