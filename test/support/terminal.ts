import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';

/** Runs a command on a terminal of its own (bsdutils); elsewhere than on Linux it takes other options. */
const SCRIPT = '/usr/bin/script';

/** Why there can be no test on a terminal; undefined when there can. Where one is required, that is for the test to fail on. */
export const terminalMissing: string | undefined =
  (process.platform === 'linux' && existsSync(SCRIPT)) ||
  process.env['SWITCHBOARD_TEST_REQUIRE_TERMINAL'] === '1'
    ? undefined
    : `${SCRIPT} of Linux is not installed (SWITCHBOARD_TEST_REQUIRE_TERMINAL=1 makes that a failure)`;

/**
 * Runs a command of Switchboard's on a terminal.
 * @param act what to type each time it asks for the token, or what to do with the link that it shows
 */
export async function runOnTerminal(
  args: readonly string[],
  act: readonly string[] | ((link: string) => Promise<unknown>),
  env: Readonly<Record<string, string>>,
) {
  const command = [process.execPath, 'bin/switchboard.js', ...args].join(' ');
  const child = spawn(SCRIPT, ['-qefc', command, '/dev/null'], {
    // No browser opens by itself.
    env: { ...process.env, PATH: '', ...env, LOG_LEVEL: 'warn' },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let screen = '';
  let typed = 0;
  let acted: Promise<unknown> | undefined;
  child.stdout.on('data', (chunk: Buffer) => {
    screen += chunk.toString();
    if (typeof act !== 'function') {
      const asked = screen.split('token: ').length - 1;
      for (const answer of act.slice(typed, asked)) child.stdin.write(answer);
      typed = Math.max(typed, asked);
      return;
    }
    const link = /http\S+\/connect\/\S+(?=\s)/.exec(screen)?.[0];
    if (link !== undefined) acted ??= act(link);
  });
  const [code] = (await once(child, 'close')) as [number | null];
  await acted;
  return { code, screen };
}
