import { describe, expect, it } from 'vitest';
import {
  isAnswerable,
  mentionsIn,
  namesIn,
  spellingsOf,
  type Answerability,
} from '../../../src/core/search/answerability.ts';

const table: Answerability = { bias: -1, semantic: 2, keyword: 0.1, request: [0, 1] };
const found = (semantic: number, keyword: number) => ({ serverId: 's', semantic, keyword, tools: [] });
const plain = Float32Array.of(1, 0);
const asking = Float32Array.of(0, 1);
const talking = Float32Array.of(0, -1);

describe('isAnswerable', () => {
  it('adds up the best evidence of any server and what the request is', () => {
    expect(isAnswerable({ candidates: [found(0.2, 4)], vectors: [plain] }, table)).toBe(false);
    expect(isAnswerable({ candidates: [found(0.2, 4), found(0.5, 0)], vectors: [plain] }, table)).toBe(true);
    expect(isAnswerable({ candidates: [found(0.2, 6)], vectors: [plain] }, table)).toBe(true);
    expect(isAnswerable({ candidates: [], vectors: [asking] }, table)).toBe(true);
    expect(isAnswerable({ candidates: [found(0.9, 9)], vectors: [talking] }, table)).toBe(true);
    expect(isAnswerable({ candidates: [found(0.5, 9)], vectors: [talking] }, table)).toBe(false);
  });

  it('takes the mean over the sentences of a request', () => {
    expect(isAnswerable({ candidates: [found(0.5, 0)], vectors: [asking, talking] }, table)).toBe(true);
    expect(isAnswerable({ candidates: [found(0.4, 0)], vectors: [asking, talking] }, table)).toBe(false);
  });

  it('judges nothing that it cannot: without vectors, or without a table', () => {
    expect(isAnswerable({ candidates: [], vectors: [] }, table)).toBe(true);
    expect(isAnswerable({ candidates: [], vectors: [talking] }, undefined)).toBe(true);
  });
});

describe('namesIn', () => {
  it.each([
    ['Figma', 'figma', 'alone'],
    ['Raygun', 'Raygun errors', 'among'],
    ['Google Maps', 'is there google maps?', 'alone'],
    ['Asana', 'crear tarea Asana', 'among'],
    ['GoMarble', 'GoMarble', 'alone'],
    ['WayStation', 'waystation', 'alone'],
    ['WayStation', 'use waystation', 'among'],
    ['DefiLlama (unofficial)', 'defillama', 'alone'],
    ['Make', 'make it stop raining over my garden party until six', 'not'],
    ['Google Maps', 'maps', 'not'],
    ['Jam', 'open this jam jar, the lid wont budge', 'not'],
    ['The', 'the', 'not'],
    ['', 'anything', 'not'],
    ['(beta)', 'anything', 'not'],
  ])('%s in "%s": %s', (name, query, naming) => {
    expect(namesIn(query)(spellingsOf(name))).toBe(naming);
  });
});

describe('mentionsIn', () => {
  it.each([
    ['crear una tarea en Asana', 'Asana'],
    ['wie viele Fehler hat Sentry heute', 'Sentry (beta)'],
    ['今日Sentryを見て', 'Sentry'],
    ['no, put it into "Google Drive"', 'Google Drive'],
    ['Render にデプロイする', 'Render'],
    ['Stripeで検索', 'Stripe'],
    ['Render: deploy this', 'Render'],
  ])('knows a name as it is written: %s', (query, name) => {
    expect(mentionsIn(query)(name)).toBe(true);
  });

  it.each([
    ['Make it snow', 'Make'],
    ['Enough. Make it snow', 'Make'],
    ['we make it snow', 'Make'],
    ['the Makers of snow', 'Make'],
    ['iMake snow', 'Make'],
    ['do we have X', 'X'],
    ['We Had Lentil Soup Again. Third Time This Week', 'Time'],
    ['- Search me', 'Search'],
    ['so? "Search me', 'Search'],
    ['so\n Search me', 'Search'],
    ['reddit and more', 'reddit'],
    ['what is this', ''],
  ])('does not take a word for a name: %s', (query, name) => {
    expect(mentionsIn(query)(name)).toBe(false);
  });
});
