import { spawnSync } from 'node:child_process';
import { parseArgs, type ParseArgsOptionsConfig } from 'node:util';

/** Says why a bench cannot run, and ends it. */
export function refuse(reason: string): never {
  console.error(reason);
  process.exit(2);
}

/**
 * Returns the options of a bench. With `--help`, or options that it does not have, it says which ones there are, and ends; also
 * with a value that is no number where the default is one, or a list of them, and with one that is not among the choices.
 * @param script the npm script
 * @param choices the values that options may have, in lists separated by commas
 */
export function readOptions<const Options extends ParseArgsOptionsConfig>(
  script: string,
  options: Options,
  choices: Readonly<Record<string, readonly string[]>> = {},
) {
  const listed = Object.entries(options).map(([name, { type, default: usual }]) =>
    type === 'boolean'
      ? `[--${name}]`
      : `[--${name} ${usual === undefined ? name.toUpperCase() : String(usual)}]`,
  );
  const usage = `Usage: npm run ${script} -- ${listed.join(' ')}`;
  if (process.argv.includes('--help')) {
    console.log(usage);
    process.exit(0);
  }
  try {
    const { values } = parseArgs({ options });
    for (const [name, given] of Object.entries(values)) {
      const problem = problemOf(given, options[name]?.default, choices[name]);
      if (problem !== undefined) throw new Error(`--${name} ${String(given)}: ${problem}`);
    }
    return values;
  } catch (error) {
    return refuse(`${(error as Error).message}\n${usage}`);
  }
}

function problemOf(given: unknown, usual: unknown, choices?: readonly string[]): string | undefined {
  if (typeof given !== 'string') return undefined;
  const parts = given.split(',');
  if (choices && !parts.every(part => choices.includes(part))) return `must be of ${choices.join(', ')}`;
  if (typeof usual !== 'string' || usual.split(',').some(part => Number.isNaN(Number(part))))
    return undefined;
  const least = usual === '0' ? 0 : Number.MIN_VALUE;
  const areNumbers = parts.every(part => Number(part) >= least && (Number(part) < 1e9 || part === usual));
  return areNumbers ? undefined : `must be ${usual.includes(',') ? 'numbers' : 'a number'} above 0`;
}

/** Ends the bench if a program is not installed. @param hint how to install it */
export function requireProgram(program: string, hint: string): void {
  if (spawnSync(program, ['--version']).error) refuse(`${program} is not installed. ${hint}`);
}

/** What a bench is told as `--name 5`, each number with its default, and `--json`. */
export function readSizes<Name extends string>(
  script: string,
  defaults: Readonly<Record<Name, number>>,
): { readonly sizes: Readonly<Record<Name, number>>; readonly json: boolean } {
  const names = Object.keys(defaults) as Name[];
  const values = readOptions(script, {
    ...Object.fromEntries(
      names.map(name => [name, { type: 'string' as const, default: String(defaults[name]) }]),
    ),
    json: { type: 'boolean' as const },
  });
  const given = values as Readonly<Partial<Record<Name, string>>>;
  const sizes = Object.fromEntries(names.map(name => [name, Number(given[name])]));
  return { sizes: sizes as Record<Name, number>, json: values.json === true };
}

/** A fact a line, numbers with at most four digits behind the point. */
export function printFacts(facts: object): void {
  const width = Math.max(...Object.keys(facts).map(name => name.length)) + 2;
  for (const [name, value] of Object.entries(facts))
    console.log(name.padEnd(width), typeof value === 'number' ? Number(value.toFixed(4)) : value);
}
