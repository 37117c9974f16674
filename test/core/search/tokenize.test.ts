import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sentencesOf, splitIdentifier, tokenize } from '../../../src/core/search/documents.ts';

describe('tokenize', () => {
  it.each([
    ['list_issues', ['list', 'issu', 'listissu']],
    ['getUserByID', ['get', 'user', 'id', 'getuserbyid']],
    ['HTTPServer', ['http', 'server', 'httpserver']],
    ['kebab-case', ['kebab', 'case', 'kebabcas']],
    ['oauth2 s3', ['oauth2', 's3']],
    ['Café ÉCOLE naïve', ['cafe', 'ecol', 'naiv']],
    ["the user's tweets", ['user', 'tweet']],
    ["I’d like to know what's the weather, don't you?", ['know', 'weather']],
    ["O'Reilly", ['o', 'reilli', 'oreilli']],
    ['ｆｕｌｌ　ｗｉｄｔｈ', ['full', 'width']],
    ['Привет, Йод', ['привет', 'иод']],
  ])('%j gives %j', (text, terms) => {
    expect(tokenize(text)).toEqual(terms);
  });

  it('cuts scripts without spaces into overlapping pairs and keeps their marks', () => {
    expect(tokenize('東京都の天気')).toEqual(['東京', '京都', '都の', 'の天', '天気']);
    expect(tokenize('ガ')).toEqual(['ガ']);
    expect(tokenize('날씨')).toEqual(['날씨']);
    expect(tokenize('LINEで送る')).toEqual(['line', 'で送', '送る']);
  });

  it('finds a joined name however it is written', () => {
    const joined = tokenize('GitHub');
    expect(joined).toEqual(expect.arrayContaining(tokenize('github')));
    expect(joined).toEqual(expect.arrayContaining(tokenize('git-hub')));
  });

  it('takes any text and gives no empty or overlong term', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), text => {
        for (const term of tokenize(text)) {
          expect(term).not.toBe('');
          expect(term.length).toBeLessThanOrEqual(64);
        }
      }),
    );
  });

  it('does not depend on the case of plain words', () => {
    fc.assert(
      fc.property(fc.stringMatching(/^[a-z]{1,12}( [a-z]{1,12})*$/), text => {
        expect(tokenize(text.toUpperCase())).toEqual(tokenize(text));
      }),
    );
  });
});

describe('splitIdentifier', () => {
  it.each([
    ['getUser_byID', 'get User by ID'],
    ['resolve-library-id', 'resolve library id'],
    ['search', 'search'],
    ['__', ''],
  ])('%j reads %j', (name, prose) => {
    expect(splitIdentifier(name)).toBe(prose);
  });
});

describe('sentencesOf', () => {
  it.each([
    ['Find a hotel in Rome.', ['Find a hotel in Rome']],
    ['  Find  a hotel in Rome ?!', ['Find a hotel in Rome']],
    ['???', ['???']],
    ['Hi! Find a hotel in Rome.', ['Hi! Find a hotel in Rome']],
    [
      'Find a hotel in Rome. Then book a table near v1.2 of it!',
      ['Find a hotel in Rome', 'Then book a table near v1.2 of it'],
    ],
    ['first line of it\nsecond line of it', ['first line of it', 'second line of it']],
    [
      '東京の天気を教えてください。近くのレストランも探して。',
      ['東京の天気を教えてください', '近くのレストランも探して'],
    ],
  ])('%j has %j', (text, sentences) => {
    expect(sentencesOf(text)).toEqual(sentences);
  });

  it('gives at most eight and leaves nothing out', () => {
    const all = Array.from({ length: 20 }, (_, at) => `Sentence number ${at}.`);
    const sentences = sentencesOf(all.join(' '));
    expect(sentences).toHaveLength(8);
    expect(`${sentences.join('. ')}.`).toBe(all.join(' '));
  });
});
