import { LRUCache } from 'lru-cache';

const parsed = new LRUCache<string, URL>({ max: 1_000 });

/** A catalogued URL, parsed once and not at each call. It is shared: nobody may change it. */
export function urlOf(text: string): URL {
  const known = parsed.get(text);
  if (known) return known;
  const url = new URL(text);
  parsed.set(text, url);
  return url;
}
