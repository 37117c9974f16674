import { parseArgs } from 'node:util';
import { CommandFailed, connectAdmin } from './cli/admin-client.ts';
import { UsageError, type Command, type DatabaseCommand, type Invocation } from './cli/command.ts';
import { commands } from './cli/commands.ts';
import { processIo, table, type Io } from './cli/io.ts';
import { serve } from './cli/serve.ts';
import { ConfigError, readConfig } from './config/index.ts';
import { packageVersion } from './platform/package-version.ts';

const SHARED_OPTIONS = { json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } as const;

/** On the wrong data folder a command works as well as on the right one. */
const ADVICE = 'For a server on another folder, set SWITCHBOARD_DATA_DIR as it has it.';

/** What shells say of a program that Ctrl-C ended. */
const INTERRUPTED = 130;

/** Runs one command. Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 130 Ctrl-C. */
async function main(argv: readonly string[], io: Io): Promise<number> {
  try {
    return await dispatch(argv, io);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const code = codeOf(error);
    io.complain(
      argv.includes('--json')
        ? JSON.stringify({ error: { code, detail: message } })
        : `switchboard: ${message}`,
    );
    if (code === 'interrupted') return INTERRUPTED;
    return code === 'invalid_request' || code === 'invalid_settings' ? 2 : 1;
  }
}

function codeOf(error: unknown): string {
  if (error instanceof UsageError) return 'invalid_request';
  if (error instanceof ConfigError) return 'invalid_settings';
  return (error instanceof CommandFailed ? error.code : undefined) ?? 'failed';
}

async function dispatch(argv: readonly string[], io: Io): Promise<number> {
  const [first = 'serve', second = ''] = argv;
  const name = [`${first} ${second}`, first].find(one => Object.hasOwn(commands, one));
  const command = name === undefined ? undefined : commands[name];
  if (name !== undefined && command) return run(name, command, argv.slice(name.split(' ').length), io);
  if (first === '--version') {
    io.print(await packageVersion());
    return 0;
  }
  if (first === 'help' || argv.includes('--help') || argv.includes('-h')) {
    io.print(usage());
    return 0;
  }
  if (first !== 'serve') {
    throw new UsageError(
      `unknown command ${JSON.stringify(`${first} ${second}`.trim())}. See switchboard --help`,
    );
  }
  if (argv.length > 1) throw new UsageError(`serve takes no arguments, not ${argv.slice(1).join(' ')}`);
  return serve(readConfig(), io);
}

async function run(
  name: string,
  command: Command | DatabaseCommand,
  argv: readonly string[],
  io: Io,
): Promise<number> {
  const { args, options } = parse(argv, command);
  if (options['help'] === true) {
    io.print(usageOf(name, command));
    return 0;
  }
  if (!takes(command, args.length)) throw new UsageError(`usage: ${usageOf(name, command)}`);
  const config = readConfig();
  const print = (answer: { json: unknown; text: string }) =>
    io.print(options['json'] === true ? JSON.stringify(answer.json) : answer.text);
  if ('on' in command) {
    print(await command.run({ config, io, args, options }));
    return 0;
  }
  await using admin = await connectAdmin(config, { mayCreate: command.changes === true });
  const tell = (what: string) => io.complain(`No server is running on ${config.dataDir}: ${what}`);
  if (admin.alone === 'new') tell(`a new database was created there. ${ADVICE}`);
  const { json, text, failed = false } = await command.run({ admin, io, args, options });
  print({ json, text });
  if (command.changes && admin.alone === 'existing') tell(`changed the data there. ${ADVICE}`);
  if (command.changes && admin.alone === 'shared') tell('changed the database of DATABASE_URL.');
  return failed ? 1 : 0;
}

function takes({ args }: Command | DatabaseCommand, count: number): boolean {
  const isEndless = args.some(arg => arg.endsWith('*'));
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
    const { positionals, values } = parseArgs({
      args: [...argv],
      options: { ...own, ...SHARED_OPTIONS },
      allowPositionals: true,
    });
    return { args: positionals, options: values as Invocation['options'] };
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

/** An optional argument in brackets. */
const shown = (arg: string) => arg.replace(/^(.*)\?$/, '[$1]').replace(/^(.*)\*$/, '[$1…]');

const usageOf = (name: string, command: Command | DatabaseCommand) =>
  [
    `switchboard ${[name, ...command.args.map(shown)].join(' ')}: ${command.help}`,
    ...Object.entries(command.options ?? {}).map(
      ([option, { type, help }]) => `  --${option}${type === 'string' ? ' VALUE' : ''}  ${help}`,
    ),
  ].join('\n');

function usage(): string {
  const rows = Object.entries(commands).map(([name, command]) => [
    `  ${[name, ...command.args.map(shown)].join(' ')}`,
    command.help,
  ]);
  return [
    'Usage: switchboard [COMMAND] [OPTIONS]',
    '',
    table([['  serve', 'serve REST and MCP (the default)'], ...rows]),
    '',
    'Every command takes --json and --help. Commands work whether or not a server is running on SWITCHBOARD_DATA_DIR; those that only read make no database there. While one is, migrate, export and import work on a Postgres only.',
    'Settings are environment variables; the README lists them.',
  ].join('\n');
}

process.exitCode = await main(process.argv.slice(2), processIo);
