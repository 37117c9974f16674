import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '../../test/support/program.ts';
import { UserAgent } from '../../test/support/user-agent.ts';
import { pythonWith } from './install.ts';
import { startChild, unlessAborted, type Child } from './processes.ts';
import type { Setting } from './setting.ts';

const HTTPX = '0.28.1';
export const PYTHON_PAGE = 'docs/python.md';
const USER = 'user-of-the-python-page';
/** Of the parts that need no user. */
const FIRST_LINES = [/^Echo: hello$/, /^server_not_found: /];

/**
 * Runs the program on the page twice: with a sign-in, and then with tokens that must be refreshed.
 * @throws CannotInstall
 */
export async function runPythonPage(setting: Setting, signal: AbortSignal): Promise<void> {
  const interpreter = await pythonWith({ httpx: HTTPX }, signal);
  const { switchboard } = await setting.serversFor(USER);
  if (switchboard?.key === undefined) throw new Error('there is no Switchboard');
  const { origin } = new URL(switchboard.url);
  await using folder = temporaryFolder();
  const file = path.join(folder.path, 'tokens.json');
  const program = [...(await readFile(PYTHON_PAGE, 'utf8')).matchAll(/^```python\n([\s\S]*?)^```/gm)]
    .map(([, block]) => block)
    .join('\n');
  const env = {
    PATH: process.env['PATH'],
    SWITCHBOARD_URL: origin,
    SWITCHBOARD_KEY: switchboard.key,
    TOKENS: file,
    SERVER: 'account',
    TOOL: 'echo',
    ARGUMENTS: '{"message":"ebb"}',
  };
  const start = () => startChild(interpreter, ['-c', program], { env });
  const lineOf = async (child: Child, expected: RegExp) => {
    const line = await unlessAborted(signal, child.line());
    if (!expected.test(line)) throw new Error(`it printed ${line} instead of ${expected}`);
    return line;
  };

  await using first = start();
  for (const expected of FIRST_LINES) await lineOf(first, expected);
  const asking = await lineOf(first, /^Sign in here: http/);
  const isOurs = (address: string) => address.startsWith(`${origin}/`);
  await new UserAgent().signIn(asking.replace(/.*: /, ''), { login: USER, stopAt: isOurs });
  await lineOf(first, /Echo: ebb/);

  const tokens = JSON.parse(await readFile(file, 'utf8'));
  await writeFile(file, JSON.stringify({ ...tokens, expires_at: 0 }));
  await using second = start();
  for (const expected of [...FIRST_LINES, /Echo: ebb/]) await lineOf(second, expected);
  const { refresh_token: next } = JSON.parse(await readFile(file, 'utf8'));
  if (next === tokens.refresh_token) throw new Error('it did not keep the next refresh token');
}
