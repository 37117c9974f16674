import { parseArgs } from 'node:util';
import { readConfig } from '../config/index.ts';
import { nearest } from '../platform/closest-names.ts';
import { packageVersion } from '../config/package-version.ts';
import { connectAdmin } from './admin-client.ts';
import { UsageError, type Command, type DatabaseCommand, type Invocation } from './command.ts';
import { commands } from './commands.ts';
import { failureOf } from './failure.ts';
import { jsonLine, table, type Io } from './terminal.ts';
import { work, WORKER } from './serve/worker.ts';

const SHARED_OPTIONS = { json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } as const;

/** The usual exit code after Ctrl-C. */
const INTERRUPTED = 130;

/**
 * Runs one command. Returns the exit code: 0 success, 1 failure, 2 wrong usage or settings, 130 Ctrl-C.
 * @param env the settings; by default those of the process
 */
export async function main(argv: readonly string[], io: Io, env?: NodeJS.ProcessEnv): Promise<number> {
  try {
    return await dispatch(argv, io, env);
  } catch (error) {
    const { code, detail } = failureOf(error);
    io.complain(
      argv.includes('--json') ? JSON.stringify({ error: { code, detail } }) : `switchboard: ${detail}`,
    );
    if (code === 'interrupted') return INTERRUPTED;
    return code === 'invalid_request' || code === 'invalid_settings' ? 2 : 1;
  }
}

async function dispatch(
  argv: readonly string[],
  io: Io,
  env: NodeJS.ProcessEnv | undefined,
): Promise<number> {
  const [first = 'serve', second = ''] = argv;
  const name = [`${first} ${second}`, first].find(one => Object.hasOwn(commands, one));
  const command = name === undefined ? undefined : commands[name];
  if (name !== undefined && command) {
    const rest = argv.slice(name.split(' ').length);
    return run(name, command, { argv: rest, io, env });
  }
  if (first === '--version') {
    io.print(await packageVersion());
    return 0;
  }
  if (first === 'help' || argv.includes('--help') || argv.includes('-h')) {
    io.print(helpOn(first));
    return 0;
  }
  if (first === WORKER) return work(readConfig(env), Number(second));
  if (first !== 'serve') throw unknownCommand(first, second);
  return serveWithout(argv.slice(1), io, env);
}

async function serveWithout(
  args: readonly string[],
  io: Io,
  env: NodeJS.ProcessEnv | undefined,
): Promise<number> {
  if (args.length > 0) throw new UsageError(`serve takes no arguments, not ${args.join(' ')}`);
  const config = readConfig(env);
  const { serve } = await import('./serve/serve.ts');
  return serve(config, io);
}

function unknownCommand(first: string, second: string): UsageError {
  const subcommands = Object.keys(commands).filter(one => one.startsWith(`${first} `));
  // The words after a command of one word are its arguments.
  const given = subcommands.length > 0 ? `${first} ${second}`.trim() : first;
  const meant = meantBy(first, second);
  const known = subcommands.length === 0 ? '' : ` The commands are ${subcommands.join(', ')}.`;
  const hint = known === '' && meant !== undefined ? ` Did you mean ${meant}?` : known;
  return new UsageError(`unknown command ${JSON.stringify(given)}.${hint} See switchboard --help`);
}

/** Returns the command that a misspelled one may mean. */
function meantBy(first: string, second: string): string | undefined {
  const names = ['serve', ...Object.keys(commands)];
  const alike = names.filter(name => nearest(first, [name.split(' ')[0] ?? ''], 1).length > 0);
  const [pair] = nearest(
    `${first} ${second}`,
    alike.filter(name => name.includes(' ')),
    1,
  );
  const [single] = nearest(
    first,
    alike.filter(name => !name.includes(' ')),
    1,
  );
  return single ?? pair;
}

interface Surroundings {
  readonly argv: readonly string[];
  readonly io: Io;
  readonly env: NodeJS.ProcessEnv | undefined;
}

async function run(
  name: string,
  command: Command | DatabaseCommand,
  { argv, io, env }: Surroundings,
): Promise<number> {
  const { args, options } = parse(argv, command);
  if (options['help'] === true) {
    io.print(usageOf(name, command));
    return 0;
  }
  if (!takes(command, args.length)) throw new UsageError(`usage: ${usageOf(name, command)}`);
  const config = readConfig(env);
  const print = (answer: { json: unknown; text: string }) =>
    io.print(options['json'] === true ? jsonLine(answer.json) : answer.text);
  if ('on' in command) {
    print(await command.run({ config, io, args, options }));
    return 0;
  }
  await using admin = await connectAdmin(config, { mayCreate: command.changes === true });
  // With a wrong data folder, the change would succeed silently in the wrong place, so name the folder.
  const remark = (what: string) => io.complain(`No server is running on ${config.dataDir}: ${what}`);
  const advice = 'If your server uses another folder, set SWITCHBOARD_DATA_DIR to it.';
  if (admin.alone === 'new') remark(`a new database was created there. ${advice}`);
  const { json, text, failed = false } = await command.run({ admin, io, args, options });
  print({ json, text });
  if (command.changes && admin.alone === 'existing') remark(`changed the data there. ${advice}`);
  if (command.changes && admin.alone === 'shared') remark('changed the database of DATABASE_URL.');
  return failed ? 1 : 0;
}

function takes({ args }: Command | DatabaseCommand, count: number): boolean {
  const isEndless = args.some(arg => /[*+]$/.test(arg));
  const required = args.filter(arg => !/[?*]$/.test(arg)).length;
  return count >= required && (isEndless || count <= args.length);
}

function parse(argv: readonly string[], command: Command | DatabaseCommand) {
  const own = Object.fromEntries(
    Object.entries(command.options ?? {}).map(([name, { type, multiple = false }]) => [
      name,
      { type, multiple },
    ]),
  );
  try {
    const options = { ...own, ...SHARED_OPTIONS };
    const { positionals, values } = parseArgs({ args: [...argv], options, allowPositionals: true });
    return { args: positionals, options: values as Invocation['options'] };
  } catch (error) {
    throw new UsageError(
      unknownOption(error, Object.keys({ ...own, ...SHARED_OPTIONS })) ??
        (error instanceof Error ? error.message : String(error)),
    );
  }
}

/** Returns what to say of an option that a command does not have; undefined for another error. */
function unknownOption(error: unknown, known: readonly string[]): string | undefined {
  const [, given] = /^Unknown option '(-\S+)'/.exec(error instanceof Error ? error.message : '') ?? [];
  if (given === undefined) return undefined;
  const [meant] = nearest(given, known, 1);
  const hint =
    meant === undefined
      ? ` The options are ${known.map(name => `--${name}`).join(', ')}.`
      : ` Did you mean --${meant}?`;
  return `unknown option ${given}.${hint} If it is text, put -- before it.`;
}

/** Returns a command with its arguments, optional ones in brackets. */
export const synopsis = (name: string, { args }: Command | DatabaseCommand): string =>
  [
    name,
    ...args.map(arg =>
      arg
        .replace(/^(.*)\?$/, '[$1]')
        .replace(/^(.*)\*$/, '[$1…]')
        .replace(/\+$/, '…'),
    ),
  ].join(' ');

/** Removes the markup of a help text: code marks and links. */
const plain = (help: string) => help.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').replaceAll('`', '');

function usageOf(name: string, command: Command | DatabaseCommand): string {
  const options = Object.entries(command.options ?? {}).map(([option, { type, help }]) => [
    `  --${option}${type === 'string' ? ' VALUE' : ''}`,
    plain(help),
  ]);
  return [`switchboard ${synopsis(name, command)}: ${plain(command.help)}`, table(options)]
    .join('\n')
    .trimEnd();
}

const rowsOf = (some: readonly (readonly [string, Command | DatabaseCommand])[]) =>
  some.map(([name, command]) => [`  ${synopsis(name, command)}`, plain(command.help)]);

/** Returns the usage of the commands that begin with a word; of all if none does. */
function helpOn(word: string): string {
  const group = Object.entries(commands).filter(([name]) => name.startsWith(`${word} `));
  if (group.length === 0) return usage();
  return [
    `Usage: switchboard ${word} COMMAND [OPTIONS]`,
    '',
    table(rowsOf(group)),
    '',
    `switchboard ${word} COMMAND --help shows the options of one. switchboard --help lists all commands.`,
  ].join('\n');
}

function usage(): string {
  const rows = rowsOf(Object.entries(commands));
  return [
    'Usage: switchboard [COMMAND] [OPTIONS]',
    '',
    table([['  serve', 'Serves REST and MCP. This is the default.'], ...rows]),
    '',
    'Every command takes --json and --help. COMMAND --help shows its options.',
    'Commands work whether or not a server is running on SWITCHBOARD_DATA_DIR.',
    'Read-only commands, connect and disconnect fail if there is no database yet. The others create it.',
    'While a server is running, migrate needs Postgres. The database commands need the server stopped.',
    'Settings are environment variables: see docs/configuration.md.',
  ].join('\n');
}
