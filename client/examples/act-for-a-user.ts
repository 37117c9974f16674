/**
 * Signs a user in, keeps the tokens in a file, and calls a tool for the user. The next run needs no sign-in.
 * Settings: SWITCHBOARD_URL (http://127.0.0.1:8080), SWITCHBOARD_KEY, PROVIDER (local), SERVER and TOOL (whoami), ARGUMENTS
 * ({}), TOKENS (tokens.json). docs/quickstart-users.md starts a provider and a server to try it with.
 */
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import {
  isSwitchboardError,
  Switchboard,
  UserTokens,
  type Tokens,
  type TokenStore,
} from '@switchboard/client';

const { env } = process;
const switchboard = new Switchboard({
  url: env['SWITCHBOARD_URL'] ?? 'http://127.0.0.1:8080',
  apiKey: env['SWITCHBOARD_KEY'] ?? '',
});

const file = env['TOKENS'] ?? 'tokens.json';
const store: Required<TokenStore> = {
  // A crash leaves the old set or the new one, never half of one.
  async save(tokens) {
    await writeFile(`${file}.new`, JSON.stringify(tokens), { mode: 0o600 });
    await rename(`${file}.new`, file);
  },
  async load() {
    const text = await readFile(file, 'utf8').catch(() => undefined);
    return text === undefined ? undefined : (JSON.parse(text) as Tokens);
  },
};

async function signIn(): Promise<Tokens> {
  const provider = env['PROVIDER'] ?? 'local';
  const tokens = await switchboard.signIn(
    { user_id: 'ada', provider },
    { open: authUrl => console.log(`Sign in here: ${authUrl}`) },
  );
  await store.save(tokens);
  return tokens;
}

const tokens = (await store.load()) ?? (await signIn());
const forAda = switchboard.as(new UserTokens(switchboard, tokens, store));
try {
  const { content } = await forAda.callTool({
    server_id: env['SERVER'] ?? 'whoami',
    name: env['TOOL'] ?? 'whoami',
    arguments: JSON.parse(env['ARGUMENTS'] ?? '{}') as Record<string, unknown>,
  });
  console.log(content);
} catch (error) {
  if (isSwitchboardError(error, 'connection_required')) {
    console.log(`Connect your account first: ${error.session?.auth_url}`);
  } else if (isSwitchboardError(error, 'invalid_grant')) {
    await rm(file);
    console.log('The tokens can no longer be renewed. Run this again to sign in.');
  } else throw error;
}
