import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CATEGORIES, type Entry } from '../../../src/core/catalogue/entry.ts';
import { readEntries } from '../../../src/core/catalogue/import-file.ts';

const file = readFileSync(new URL('../../../catalogue/servers.jsonl', import.meta.url), 'utf8');
const { entries, problems, unknownFields } = readEntries(file, { allowHttp: false });

const sources = readFileSync(new URL('../../../catalogue/sources.jsonl', import.meta.url), 'utf8')
  .trimEnd()
  .split('\n')
  .map(line => JSON.parse(line) as { readonly id: string; readonly from: string; readonly on: string });

const duplicatesOf = (values: readonly string[]) => [
  ...new Set(values.filter((value, at) => values.indexOf(value) !== at)),
];
const entriesWhere = (wrong: (entry: Entry) => boolean) => entries.filter(wrong).map(entry => entry.id);

describe('the shipped catalogue', () => {
  it('has at least 900 servers, at least 450 of them with tools, and every line is a valid entry', () => {
    expect(problems).toEqual([]);
    expect(unknownFields).toEqual([]);
    expect(entries.length).toBe(file.trimEnd().split('\n').length);
    expect(entries.length).toBeGreaterThanOrEqual(900);
    expect(entries.filter(entry => entry.tools).length).toBeGreaterThanOrEqual(450);
  });

  it('has at least 6,000 tools, two thirds of them with their arguments', () => {
    const tools = entries.flatMap(entry => entry.tools ?? []);
    expect(tools.length).toBeGreaterThanOrEqual(6_000);
    const withArguments = tools.filter(tool => tool.input_schema['properties'] !== undefined);
    expect(withArguments.length / tools.length).toBeGreaterThan(2 / 3);
  });

  it('has for every entry where its facts are from and when they were read', () => {
    expect(sources.map(({ id }) => id)).toEqual(entries.map(({ id }) => id));
    const vague = sources.filter(({ from, on }) => from.length < 10 || !/^20\d\d-\d\d-\d\d$/.test(on));
    expect(vague).toEqual([]);
  });

  it('names no id, address or tool of a server twice', () => {
    expect(duplicatesOf(entries.map(entry => entry.id))).toEqual([]);
    expect(duplicatesOf(entries.map(entry => entry.remote_url.replace(/\/$/, '').toLowerCase()))).toEqual([]);
    expect(
      entriesWhere(entry => duplicatesOf((entry.tools ?? []).map(tool => tool.name)).length > 0),
    ).toEqual([]);
  });

  it('has no two copies of one server on a host of many', () => {
    const hostOf = ({ remote_url: url }: Entry) => new URL(url).hostname;
    const namesOf = ({ tools = [] }: Entry) => new Set(tools.map(tool => tool.name));
    const copies = entries.flatMap((one, at) =>
      entries.slice(at + 1).flatMap(other => {
        const [names, others] = [namesOf(one), namesOf(other)];
        if (hostOf(one) !== hostOf(other) || Math.min(names.size, others.size) < 3) return [];
        const shared = [...names].filter(name => others.has(name)).length;
        return shared / (names.size + others.size - shared) > 0.9 ? [[one.id, other.id]] : [];
      }),
    );
    expect(copies).toEqual([]);
  });

  it('says what a server does without advertising it', () => {
    const advertising =
      /\b(?:seamless|powerful|effortless|comprehensive|leverag|robust|cutting-edge|supercharg|unlock|empower|streamlin(?:e|es|ed|ing)\b|blazing|simply|easily|utiliz)/i;
    const praises = ({ name, description }: Entry) => advertising.test(description.replaceAll(name, ''));
    expect(entriesWhere(praises)).toEqual([]);
    expect(
      entriesWhere(({ tools = [] }) => tools.some(({ description }) => advertising.test(description))),
    ).toEqual([]);
  });

  it('has only https addresses without placeholders', () => {
    expect(
      entriesWhere(entry => !entry.remote_url.startsWith('https://') || /[{}[\]<>]/.test(entry.remote_url)),
    ).toEqual([]);
  });

  it('describes every server in 60 to 300 characters, every tool in at most 120', () => {
    expect(entriesWhere(({ description }) => description.length < 60 || description.length > 300)).toEqual(
      [],
    );
    expect(
      entriesWhere(entry =>
        (entry.tools ?? []).some(({ description }) => description.length < 5 || description.length > 120),
      ),
    ).toEqual([]);
  });

  it('has 5 to 100 short example requests for every server, none of them twice or in the words of its description', () => {
    const wrong = ({ description, examples = [] }: Entry) =>
      examples.length < 5 ||
      examples.length > 100 ||
      examples.some(example => example.length < 6 || example.length > 200 || description.includes(example)) ||
      duplicatesOf(examples.map(example => example.toLowerCase())).length > 0;
    expect(entriesWhere(wrong)).toEqual([]);
  });

  it('lists the integrations of a server in order, each once', () => {
    const wrong = ({ integrations = [] }: Entry) => {
      const names = integrations.map(name => name.toLowerCase());
      return duplicatesOf(names).length > 0 || names.join() !== names.toSorted().join();
    };
    expect(entriesWhere(wrong)).toEqual([]);
  });

  it('gives every server one to three categories of the closed list', () => {
    const known = new Set<string>(CATEGORIES);
    const wrong = ({ categories = [] }: Entry) =>
      categories.length < 1 || categories.length > 3 || categories.some(category => !known.has(category));
    expect(entriesWhere(wrong)).toEqual([]);
  });

  it('is sorted by id, so that a change shows as the lines it touches', () => {
    const ids = entries.map(entry => entry.id);
    expect(ids).toEqual([...ids].sort());
  });
});
