/**
 * Writes the tables of docs/configuration.md from the schemas in src/config, and those of docs/cli.md from the command table.
 * They stand between `<!-- generated: TITLE -->` and `<!-- end -->`; the text around them is written by hand.
 * `--check` writes nothing and fails where a page is out of date.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { format, resolveConfig } from 'prettier';
import type { z } from 'zod';
import type { Command, DatabaseCommand } from '../src/cli/command.ts';
import { COMMAND_GROUPS } from '../src/cli/commands.ts';
import { synopsis } from '../src/cli/main.ts';
import { SETTINGS } from '../src/config/index.ts';

type Commands = Readonly<Record<string, Command | DatabaseCommand>>;

const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows]
    .map(cells => `| ${cells.map(cell => cell.replaceAll('|', String.raw`\|`)).join(' | ')} |`)
    .join('\n');

/** Returns a row for each setting that has a description. */
function settingsTable(settings: Readonly<Record<string, z.ZodType>>): string {
  const rows = Object.entries(settings).flatMap(([name, schema]) => {
    const { description, shownDefault } = schema.meta() ?? {};
    if (description === undefined) return [];
    const value: unknown = schema.safeParse(undefined).data;
    const own = typeof value === 'string' ? value : JSON.stringify(value);
    const shown = typeof shownDefault === 'string' ? shownDefault : own && `\`${own}\``;
    return [[`\`${name}\``, shown ?? '', description]];
  });
  return table(['variable', 'default', 'meaning'], rows);
}

function commandTables(commands: Commands): string {
  const rows = Object.entries(commands).map(([name, command]) => [
    `\`${synopsis(name, command)}\``,
    command.help,
  ]);
  const options = optionRows(commands);
  return [
    table(['command', 'what it does'], rows),
    ...(options.length === 0 ? [] : [table(['option', 'of', 'meaning'], options)]),
  ].join('\n\n');
}

/** Returns a row for each option. One that several commands have with the same meaning is listed once. */
function optionRows(commands: Commands): string[][] {
  const names = Object.keys(commands);
  const isOneSubject = new Set(names.map(name => name.split(' ')[0])).size === 1;
  const rows = new Map<string, { option: string; of: string[]; help: string }>();
  for (const [name, { options = {} }] of Object.entries(commands)) {
    const shortName = isOneSubject ? name.replace(/^\S+ /, '') : name;
    for (const [option, { type, help }] of Object.entries(options)) {
      const shown = `--${option}${type === 'string' ? ' VALUE' : ''}`;
      const row = rows.get(shown + help) ?? { option: shown, of: [], help };
      row.of.push(`\`${shortName}\``);
      rows.set(shown + help, row);
    }
  }
  return [...rows.values()].map(({ option, of, help }) => [`\`${option}\``, of.join(', '), help]);
}

const PAGES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'docs/configuration.md': Object.fromEntries(
    SETTINGS.map(({ title, settings }) => [title, settingsTable(settings)]),
  ),
  'docs/cli.md': Object.fromEntries(
    Object.entries(COMMAND_GROUPS).map(([title, commands]) => [title, commandTables(commands)]),
  ),
};

/** Returns the page with its tables written anew. @throws Error where a table has no place on the page */
async function built(file: string, page: string, sections: Readonly<Record<string, string>>) {
  let text = page;
  for (const [title, content] of Object.entries(sections)) {
    const begin = `<!-- generated: ${title} -->`;
    const from = text.indexOf(begin);
    const to = text.indexOf('<!-- end -->', from);
    if (from < 0 || to < 0)
      throw new Error(`${file}: has no place for ${title}: add ${begin} and <!-- end -->`);
    text = `${text.slice(0, from + begin.length)}\n\n${content}\n\n${text.slice(to)}`;
  }
  return format(text, { ...(await resolveConfig(file)), filepath: file });
}

const isCheck = process.argv.includes('--check');
for (const [file, sections] of Object.entries(PAGES)) {
  const page = await readFile(file, 'utf8');
  const text = await built(file, page, sections);
  if (text === page) continue;
  if (isCheck) {
    console.error(`${file} is out of date: run npm run build:docs`);
    process.exitCode = 1;
  } else await writeFile(file, text);
}
