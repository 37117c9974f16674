import { main } from '../../src/cli/main.ts';
import type { Finished } from './program.ts';

/** Runs one command in this process, as the program does in its own. */
export async function runHere(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  stdin = '',
): Promise<Finished> {
  const output = { stdout: '', stderr: '' };
  const io = {
    print: (text: string) => void (output.stdout += `${text}\n`),
    complain: (text: string) => void (output.stderr += `${text}\n`),
    status: undefined,
    ask: undefined,
    input: () => Promise.resolve(stdin),
  };
  const code = await main(args, io, { LOG_LEVEL: 'silent', ...env });
  return { code, ...output };
}
