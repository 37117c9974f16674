import { main } from '../../src/cli/main.ts';
import type { Finished } from './program.ts';

/**
 * Runs one command in this process, as the program does in its own.
 * @param given stdin, or what a person answers on a terminal
 */
export async function runHere(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  given: string | readonly string[] = '',
): Promise<Finished> {
  const answers = typeof given === 'string' ? undefined : given.values();
  const output = { stdout: '', stderr: '' };
  const io = {
    print: (text: string) => void (output.stdout += `${text}\n`),
    complain: (text: string) => void (output.stderr += `${text}\n`),
    status: undefined,
    ask: answers && (() => Promise.resolve(String(answers.next().value))),
    input: () => Promise.resolve(String(given)),
  };
  const code = await main(args, io, { LOG_LEVEL: 'silent', ...env });
  return { code, ...output };
}
