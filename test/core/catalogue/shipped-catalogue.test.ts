import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CATEGORIES, type Entry } from '../../../src/core/catalogue/entry.ts';
import { readEntries } from '../../../src/core/catalogue/import-file.ts';

const file = readFileSync(new URL('../../../catalogue/servers.jsonl', import.meta.url), 'utf8');
const { entries, problems, unknownFields } = readEntries(file, { allowHttp: false });

const duplicatesOf = (values: readonly string[]) => [
  ...new Set(values.filter((value, at) => values.indexOf(value) !== at)),
];
const entriesWhere = (wrong: (entry: Entry) => boolean) => entries.filter(wrong).map(entry => entry.id);

describe('the shipped catalogue', () => {
  it('has at least 500 servers, at least 60 of them with tools, and every line is a valid entry', () => {
    expect(problems).toEqual([]);
    expect(unknownFields).toEqual([]);
    expect(entries.length).toBe(file.trimEnd().split('\n').length);
    expect(entries.length).toBeGreaterThanOrEqual(500);
    expect(entries.filter(entry => entry.tools).length).toBeGreaterThanOrEqual(60);
  });

  it('names no id, address or tool of a server twice', () => {
    expect(duplicatesOf(entries.map(entry => entry.id))).toEqual([]);
    expect(duplicatesOf(entries.map(entry => entry.remote_url.replace(/\/$/, '').toLowerCase()))).toEqual([]);
    expect(
      entriesWhere(entry => duplicatesOf((entry.tools ?? []).map(tool => tool.name)).length > 0),
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
