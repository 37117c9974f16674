import { globSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { identityCases, requirements } from './requirements.ts';

const sources = globSync('test/**/*.test.ts').map(file => ({ file, text: readFileSync(file, 'utf8') }));
const named = new Set(
  sources.flatMap(({ text }) =>
    [...text.matchAll(/\[([a-z]+(?:[.-][a-z]+)+)\]/g)].map(match => match[1] ?? ''),
  ),
);

describe('the contract', () => {
  it('has a test for every promise that does not wait for an issue', () => {
    const untested = Object.entries(requirements).filter(
      ([id, { waitsFor }]) => waitsFor === undefined && !named.has(id),
    );
    expect(untested.map(([id]) => id)).toEqual([]);
  });

  it('is only cited by ids that exist, and an open promise is not claimed to be tested', () => {
    const ids = [...named].filter(id =>
      /^(access|admin|quota|results|search|call|tools|errors|identity|versioning)/.test(id),
    );
    expect(ids.filter(id => requirements[id] === undefined)).toEqual([]);
    expect(ids.filter(id => requirements[id]?.waitsFor !== undefined)).toEqual([]);
  });

  it('is proven by tests that all run', () => {
    const switchedOff = /\b(?:it|test|describe)\.(?:skip|todo|only|fails)\b/;
    expect(sources.filter(({ text }) => switchedOff.test(text)).map(({ file }) => file)).toEqual([]);
  });

  it('has a test for every case of the acceptance list of identity', () => {
    const titles = sources
      .filter(({ file }) => /^test[\\/]core[\\/]identity[\\/]/.test(file))
      .flatMap(({ text }) =>
        [...text.matchAll(/['"`](\d+(?:(?:-|, )\d+)*): /g)].map(match => match[1] ?? ''),
      );
    const tested = new Set(titles.flatMap(title => title.split(', ').flatMap(numbersOf)));
    expect(identityCases.filter(number => !tested.has(number))).toEqual([]);
  });
});

/** `24-28` names five cases. */
function numbersOf(part: string): number[] {
  const [first = 0, last = first] = part.split('-').map(Number);
  return Array.from({ length: last - first + 1 }, (_, at) => first + at);
}
