import { expect, it } from 'vitest';
import { Places } from '../../src/platform/queues.ts';

/** Takes a place that must be free. */
const take = (places: Places, key: string): Disposable => {
  const place = places.enter(key);
  if (typeof place === 'string') throw new Error(`no place left: ${place}`);
  return place;
};

it('gives a key so many places, and others theirs; what is left can be taken again', () => {
  const places = new Places(2);
  const first = take(places, 'a');
  take(places, 'a');
  expect(places.enter('a')).toBe('key');
  take(places, 'b');
  first[Symbol.dispose]();
  take(places, 'a');
  expect(places.enter('a')).toBe('key');
});

it('gives all keys together no more than the maximum', () => {
  const places = new Places(2, 3);
  const first = take(places, 'a');
  take(places, 'b');
  take(places, 'c');
  expect(places.enter('d')).toBe('all');
  expect(places.enter('a')).toBe('all');
  first[Symbol.dispose]();
  take(places, 'd');
});
