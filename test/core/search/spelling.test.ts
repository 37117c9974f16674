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
    expect(spelling.correct('emial (wheather)?', all)).toBe('email (weather)?');
    expect(spelling.correct('seatle', use({ settle: 9, seattle: 1 }))).toBe('seattle');
  });

  it('prefers an ordinary word, then the most frequent, among the closest', () => {
    expect(spelling.correct('wether', use({ whether: 9, weather: 2 }, ['weather']))).toBe('weather');
    expect(spelling.correct('wether', use({ whether: 9, weather: 2 }))).toBe('whether');
    expect(spelling.correct('treding', use({ trading: 1, trending: 2 }))).toBe('trending');
  });

  it('leaves words of the catalogue, known words, short ones and names', () => {
    expect(spelling.correct('shedule', use({ shedule: 1, schedule: 9 }))).toBeUndefined();
    expect(spelling.correct('mellow emal', use({ email: 1 }))).toBeUndefined();
    expect(spelling.correct('tell Seatle', all)).toBeUndefined();
    expect(spelling.correct('Seatle', all)).toBe('seattle');
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

  it('corrects an ordinary word that the catalogue lacks, such as a stop word', () => {
    expect(spelling.correct('thats all', use({}, ['that']))).toBe('that all');
  });

  it('leaves a text with many unknown words, whatever its length, without much work', () => {
    expect(spelling.correct('meetng '.repeat(8).trim(), all)).toBe('meeting '.repeat(8).trim());
    expect(spelling.correct('meetng '.repeat(9).trim(), all)).toBeUndefined();
    expect(spelling.correct('meetng '.repeat(10_000), all)).toBeUndefined();
    expect(spelling.correct('m'.repeat(20_000), all)).toBeUndefined();
  });
});
