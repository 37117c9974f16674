import { describe, expect, it } from 'vitest';
import {
  documentsOf,
  termsInSlices,
  termsOfDocuments,
  textsOf,
  tokenize,
} from '../../../src/core/search/documents.ts';
import { wordsOf } from '../../../src/core/search/embed/embedder.ts';
import { server } from './support.ts';

const withSchema = (input_schema: Record<string, unknown>, description = 'Adds a row.') => ({
  ...server('sheets', 'Spreadsheets for teams.'),
  tools: [{ name: 'append_row', description, input_schema }],
});

describe('termsOfDocuments', () => {
  const many = Array.from({ length: 30 }, (_, at) => `${at} `.repeat(1_000));
  it.each([
    ['whole', "The team's sheets", ['note what I spent', '’s rest', 'é', '東京']],
    ['cut off', 'word '.repeat(1_200), ['note what I spent']],
    ['far too long', 'Adds a row.', many],
  ])(
    'gives the terms of the server and of each part, if the texts are %s',
    async (_how, description, examples) => {
      const documents = documentsOf({ ...withSchema({}, description), description, examples });
      const expected = {
        whole: tokenize(documents.whole),
        parts: documents.parts.map(({ keywords }) => tokenize(keywords)),
      };
      expect(termsOfDocuments(documents)).toEqual(expected);
      expect(await termsInSlices(documents, () => undefined)).toEqual(expected);
    },
  );
});

describe('documentsOf', () => {
  it('gives the server first and then a part for each tool', () => {
    const { whole, parts } = documentsOf(
      withSchema({ properties: { sheetId: { description: 'which sheet' } } }),
    );
    expect(parts).toEqual([
      { keywords: 'sheets. Spreadsheets for teams.', prose: 'sheets. Spreadsheets for teams.' },
      { keywords: 'append_row Adds a row. sheetId which sheet', prose: 'sheets: append row. Adds a row.' },
    ]);
    expect(whole).toBe('sheets. Spreadsheets for teams. append_row Adds a row. sheetId which sheet');
  });

  it('gives each example a part of its own, after those of the tools', () => {
    const { whole, parts } = documentsOf({ ...withSchema({}), examples: ['note what I spent'] });
    expect(parts.at(-1)).toEqual({ keywords: 'note what I spent', prose: 'note what I spent' });
    expect(parts).toHaveLength(3);
    expect(whole).toMatch(/note what I spent$/);
  });

  it.each([
    {},
    { properties: null },
    { properties: 'x' },
    { properties: { a: null, b: { description: 7 } } },
  ])('takes the schema %j', schema => {
    expect(documentsOf(withSchema(schema)).parts).toHaveLength(2);
  });

  it('bounds what a long schema and long descriptions add', () => {
    const properties = Object.fromEntries(
      Array.from({ length: 500 }, (_, i) => [`field${i}`, { description: 'long' }]),
    );
    const { whole, parts } = documentsOf(withSchema({ properties }, 'word '.repeat(4000)));
    expect(parts[1]?.keywords.length).toBeLessThanOrEqual(4000);
    expect(parts[1]?.prose.length).toBeLessThanOrEqual(1000);
    expect(whole.length).toBeLessThanOrEqual(50_000);
    expect(documentsOf(withSchema({ properties })).parts[1]?.keywords.length).toBeLessThan(600);
  });
});

describe('textsOf', () => {
  it('takes clauses from the corrected query, and what is the same in both once', () => {
    const correct = (query: string) => query.replace('fligt', 'flight');
    const { sentences, clauses, terms } = textsOf('find a fligt to Oslo. Then text me the price', correct);
    expect(sentences).toEqual(['find a fligt to Oslo', 'Then text me the price', 'find a flight to Oslo']);
    expect(clauses.map(clause => clause.terms)).toEqual([
      ['find', 'flight', 'oslo'],
      ['text', 'price'],
    ]);
    expect(terms).toContain('fligt');
  });

  it('gives each clause its place in its sentence, and one that is a sentence none', () => {
    const of = 'find a flight to Oslo and text me the price';
    expect(textsOf(`${of}. Then book a table for two.`).clauses).toEqual([
      { terms: ['find', 'flight', 'oslo'], passage: { of, from: 0, to: 21 } },
      { terms: ['text', 'price'], passage: { of, from: 26, to: 43 } },
      { terms: ['book', 'tabl', 'two'], passage: { of: 'Then book a table for two', from: 5, to: 25 } },
    ]);
    expect(textsOf('Send it to Anna today. Book a table for two.').clauses.map(one => one.passage)).toEqual([
      'Send it to Anna today',
      'Book a table for two',
    ]);
  });
});

const clausesOf = (query: string) => textsOf(query).clauses.map(({ passage }) => wordsOf(passage));

describe('the clauses of a query', () => {
  it.each([
    ['find a flight to Oslo and then e-mail me the price', ['find a flight to Oslo', 'e-mail me the price']],
    [
      'Read my mail and sum it up for me; post it to Slack.',
      ['Read my mail', 'sum it up for me', 'post it to Slack'],
    ],
    ['What is it worth? Then sell all of it', ['What is it worth', 'sell all of it']],
    ['a hotel in Paris, France, and also book a table', ['a hotel in Paris, France', 'book a table']],
  ])('splits %s', (query, clauses) => {
    expect(clausesOf(query)).toEqual(clauses);
  });

  it.each([
    'send an e-mail',
    'salt and pepper',
    'the end-to-end encryption and-also-ran file of a horse',
    'the weather in Rome, Milan and Turin',
    'a vet for my dog, who ate two grapes',
    'Finde einen Flug nach Oslo. Schick mir den Preis per E-Mail.',
    'Je cherche le vol le plus rapide pour aller à Oslo demain',
    'version 1.2.3 of node and of npm',
    'a one two, b one two, c one two, d one two',
  ])('leaves %s whole', query => {
    expect(clausesOf(query)).toEqual([]);
  });
});
