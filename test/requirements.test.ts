import { globSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { identityPromises, requirements } from './requirements.ts';

const sources = globSync('test/**/*.test.ts').map(file => ({ file, text: readFileSync(file, 'utf8') }));
const named = new Set(
  sources.flatMap(({ text }) =>
    [...text.matchAll(/\[([a-z]+(?:[.-][a-z]+)+)\]/g)].map(match => match[1] ?? ''),
  ),
);

describe('the contract', () => {
  it('has a test for every promise', () => {
    expect(Object.keys(requirements).filter(id => !named.has(id))).toEqual([]);
  });

  it('is only cited by ids that exist', () => {
    const ids = [...named].filter(id =>
      /^(access|admin|console|quota|results|search|call|tools|errors|identity|versioning)/.test(id),
    );
    expect(ids.filter(id => requirements[id] === undefined)).toEqual([]);
  });

  it('is proven by tests that all run', () => {
    const switchedOff = /\b(?:it|test|describe)\.(?:skip|todo|only|fails)\b/;
    expect(sources.filter(({ text }) => switchedOff.test(text)).map(({ file }) => file)).toEqual([]);
  });

  it('has a test for every promise of identity, and no number that is none', () => {
    const titles = sources
      .filter(({ file }) => /^test[\\/]core[\\/]identity[\\/]/.test(file))
      .flatMap(({ text }) =>
        [...text.matchAll(/['"`](\d+(?:(?:-|, )\d+)*): /g)].map(match => match[1] ?? ''),
      );
    const tested = new Set(titles.flatMap(title => title.split(', ').flatMap(numbersOf)));
    expect([...tested].sort((a, b) => a - b)).toEqual(Object.keys(identityPromises).map(Number));
  });
});

/** `24-28` names five cases. */
function numbersOf(part: string): number[] {
  const [first = 0, last = first] = part.split('-').map(Number);
  return Array.from({ length: last - first + 1 }, (_, at) => first + at);
}
