import { describe, expect, it } from 'vitest';
import { Spelling, type WordUse } from '../../../src/core/search/spelling.ts';

const WORDS = [
  'weather',
  'whether',
  'seattle',
  'settle',
  'schedule',
  'meeting',
  'tomorrow',
  'email',
  'mellow',
];
const spelling = new Spelling(new Set([...WORDS, 'trading', 'trending', 'that']));

const use = (frequencies: Record<string, number>, ordinary: readonly string[] = []): WordUse => ({
  isOrdinary: word => ordinary.includes(word),
  frequencyOf: word => frequencies[word] ?? 0,
});
const all = use(Object.fromEntries(WORDS.map(word => [word, 1])));

describe('Spelling.correct', () => {
  it('corrects letters that are missing, added, wrong, exchanged, or doubled by mistake', () => {
    expect(spelling.correct('shedule a meetng tommorow, pls', all)).toBe('schedule a meeting tomorrow, pls');
    expect(spelling.correct('emial “wheather”?', all)).toBe('email “weather”?');
    expect(spelling.correct('seatle', use({ settle: 9, seattle: 1 }))).toBe('seattle');
  });

  it('prefers the most usual mistake, then an ordinary word, then the most frequent', () => {
    const close = new Spelling(new Set(['piece', 'price', 'tuesday', 'thursday']));
    expect(close.correct('peice', use({ price: 9, piece: 1 }))).toBe('piece');
    expect(close.correct('tursday', use({ tuesday: 9, thursday: 1 }))).toBe('thursday');
    expect(spelling.correct('wether', use({ whether: 9, weather: 2 }, ['weather']))).toBe('weather');
    expect(spelling.correct('wether', use({ whether: 9, weather: 2 }))).toBe('whether');
    expect(spelling.correct('treding', use({ trading: 2, trending: 1 }))).toBe('trending');
    expect(spelling.correct('trezding', use({ trading: 1, trending: 2 }))).toBe('trending');
  });

  it('leaves known and ordinary words, short ones, names, and words that begin with another', () => {
    expect(spelling.correct('mellow emal', use({ email: 1 }))).toBeUndefined();
    expect(spelling.correct('seatle', use({ seattle: 1 }, ['seatle']))).toBeUndefined();
    expect(spelling.correct('tell Seatle', all)).toBeUndefined();
    expect(spelling.correct('Seatle', all)).toBe('seattle');
    expect(spelling.correct('emaila', all)).toBeUndefined();
    expect(spelling.correct('emaill', all)).toBe('email');
  });

  it('leaves a word of the catalogue, unless its correction is fifty times as frequent', () => {
    expect(spelling.correct('shedule', use({ shedule: 1, schedule: 50 }))).toBeUndefined();
    expect(spelling.correct('shedule', use({ shedule: 1, schedule: 51 }))).toBe('schedule');
    expect(spelling.correct('shadule', use({ shadule: 1, schedule: 999 }))).toBeUndefined();
  });

  it('leaves parts of addresses, paths and identifiers', () => {
    for (const text of [
      'a@meetng.org',
      'meetng.org',
      '/meetng',
      'meetng_id',
      'meetng-2',
      'x=meetng',
      'meetng1',
    ])
      expect(spelling.correct(text, all), text).toBeUndefined();
  });

  it('takes no word for another that is far from it, or that nobody uses', () => {
    expect(spelling.correct('meters', all)).toBeUndefined();
    expect(spelling.correct('meetng', use({}))).toBeUndefined();
    expect(spelling.correct('neeting', all)).toBeUndefined();
  });

  it('leaves a text with more than eight unknown words, without looking for others', () => {
    const unknown = Array.from('abcdfghjk', letter => `meet${letter}ng`);
    expect(spelling.correct(unknown.slice(1).join(' '), all)).toMatch(/^(meeting ?){8}$/);
    const asked: string[] = [];
    const frequencyOf = (word: string) => asked.push(word);
    expect(spelling.correct(unknown.join(' '), { ...all, frequencyOf })).toBeUndefined();
    expect(asked).toEqual([]);
    expect(spelling.correct('meetng '.repeat(10_000), all)).toMatch(/^(meeting ){10000}$/);
    expect(spelling.correct('m'.repeat(20_000), all)).toBeUndefined();
  });
});
