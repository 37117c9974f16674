import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { commands } from '../src/cli/commands.ts';
import { settings } from './support/settings.ts';

const PAGES = [...globSync('*.md'), ...globSync('docs/**/*.md'), 'bench/RESULTS.md', 'client/README.md'];
/** Settings of the containers and of scripts, which the program itself does not read. */
const OTHER_SETTINGS = [
  'MEILI_MASTER_KEY',
  'POSTGRES_PASSWORD',
  'SWITCHBOARD_KEY',
  'SWITCHBOARD_PORT',
  'SWITCHBOARD_TAG',
  'SWITCHBOARD_URL',
];

/** A command with a subcommand, such as `switchboard keys list`. */
const GROUPS = new Set(Object.keys(commands).flatMap(name => (/ /.test(name) ? [name.split(' ')[0]] : [])));
const COMMAND_OF_GROUP = new RegExp(
  String.raw`\bswitchboard ((?:${[...GROUPS].join('|')}) [a-z][\w-]*)`,
  'g',
);

const text = (file: string) => readFileSync(file, 'utf8');

/** The text of a page without its code blocks. */
const prose = (page: string) => text(page).replaceAll(/^```[\s\S]*?^```$/gm, '');

/** The anchors of a page's headings, as GitHub makes them. */
const anchors = (page: string) =>
  [...prose(page).matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  );

describe('README.md', () => {
  it('has at most 200 lines of at most 110 characters', () => {
    const lines = text('README.md').trimEnd().split('\n');
    expect(lines.length).toBeLessThanOrEqual(200);
    expect(lines.filter(line => line.length > 110)).toEqual([]);
  });
});

describe('README.md, docs/limits.md and the picture', () => {
  it('count the shipped catalogue as it is', () => {
    const lines = text('catalogue/servers.jsonl').split('\n').filter(Boolean);
    const entries = lines.map(line => JSON.parse(line) as { auth?: { kind: string }; tools?: unknown[] });
    const kinds = entries.map(({ auth }) => auth?.kind ?? 'unknown');
    const count = (wanted: string) => kinds.filter(kind => kind === wanted).length;
    const closed = count('oauth');
    const withTools = entries.filter(({ tools = [] }) => tools.length > 0).length;
    const readme = text('README.md');
    expect(readme).toContain(`${closed} of the ${entries.length} servers`);
    const others = `${count('none')} are open, ${count('credentials')} want a key, and another ${count('unknown')} servers`;
    expect(readme).toContain(others);
    expect(readme).toContain(`${entries.length - withTools} servers come without their tools`);
    expect(text('docs/limits.md').replaceAll(/\s+/g, ' ')).toContain(
      `${closed} of the ${entries.length} shipped servers)`,
    );
    expect(text('docs/switchboard.svg')).toContain(`${entries.length} MCP SERVERS`);
  });
});

describe.each(PAGES)('%s', page => {
  it('links only to files and headings that exist', () => {
    const links = [...prose(page).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link);
    const broken = links
      .filter(link => !/^[a-z]+:/.test(link))
      .filter(link => {
        const [file = '', anchor] = link.split('#');
        const target = file === '' ? page : path.join(path.dirname(page), file);
        return !existsSync(target) || (anchor !== undefined && !anchors(target).includes(anchor));
      });
    expect(broken).toEqual([]);
  });
});

// A changelog also names what is gone.
describe.each(PAGES.filter(page => page !== 'CHANGELOG.md'))('%s', page => {
  it('names only scripts and commands that exist', () => {
    const { scripts } = JSON.parse(text('package.json'));
    const ran = [...text(page).matchAll(/\bnpm run ([\w:-]+)/g)].map(([, name = '']) => name);
    expect(ran.filter(name => scripts[name] === undefined)).toEqual([]);
    const used = [...text(page).matchAll(COMMAND_OF_GROUP)].map(([, name = '']) => name);
    expect(used.filter(name => !Object.keys(commands).some(one => one.startsWith(name)))).toEqual([]);
  });

  it('names only settings that exist', () => {
    const named =
      text(page).match(/\b(SWITCHBOARD|DATABASE|MEILI\w*|POSTGRES|GOOGLE|OPENAI)_[A-Z_]+[A-Z]\b/g) ?? [];
    const known = new Set([...settings, ...OTHER_SETTINGS]);
    expect(named.filter(name => !known.has(name) && !name.startsWith('SWITCHBOARD_TEST_'))).toEqual([]);
  });
});

describe('ARCHITECTURE.md', () => {
  it('names only files and folders that exist', () => {
    const page = text('ARCHITECTURE.md');
    const paths = [...page.matchAll(/`((?:api|cli|config|core|platform)\/[\w./-]*|errors\.ts)`/g)].map(
      ([, one = '']) => one,
    );
    const [, tree = ''] = /^src\/\n([\s\S]*?)^```$/m.exec(page) ?? [];
    const folders: string[] = [];
    for (const [, indent = '', name = ''] of tree.matchAll(/^( {2,6})([\w.-]+\/?) {2,}/gm)) {
      folders.length = indent.length / 2 - 1;
      folders.push(name);
      paths.push(folders.join(''));
    }
    expect(paths.length).toBeGreaterThan(20);
    expect(paths.filter(one => !existsSync(path.join('src', one)))).toEqual([]);
  });
});

describe('the reference pages', () => {
  it('docs/configuration.md has every setting', () => {
    const page = text('docs/configuration.md');
    const missing = [...settings].filter(name => !name.startsWith('OTEL_') && !page.includes(`\`${name}\``));
    expect(missing).toEqual([]);
  });

  it('docs/cli.md has every command', () => {
    const page = text('docs/cli.md');
    expect(Object.keys(commands).filter(name => !page.includes(`| \`${name}`))).toEqual([]);
  });
});
