import { expect, it } from 'vitest';
import { isTooDeepToParse } from '../../../src/platform/json/limits.ts';

it.each([
  ['many brackets in each other', '['.repeat(20_000) + ']'.repeat(20_000), true],
  ['many objects in each other', '{"a":'.repeat(20_000) + '1' + '}'.repeat(20_000), true],
  ['many side by side', `[${'[],{},'.repeat(20_000)}1]`, false],
  ['many in a string', JSON.stringify('[{"'.repeat(20_000)), false],
])('before it is parsed: %s', (_name, text, tooDeep) => {
  expect(isTooDeepToParse(text)).toBe(tooDeep);
});
