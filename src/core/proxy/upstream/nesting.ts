import { depthOf } from '../../../platform/json-depth.ts';

/** Deeper, an answer is an attack on whoever writes it out or walks through it, not data. */
const MAX_NESTING = 200;

/**
 * Whether a parsed JSON value nests deeper than 200 levels. A text with few brackets cannot, which a search finds out at
 * next to no cost: only values with many objects are walked through.
 */
export const isTooDeep = (value: unknown, text: string): boolean =>
  isParent(value) && (hasMany(text, '{') || hasMany(text, '[')) && nestsDeeper(value, MAX_NESTING);

/** Half of the limit, as brackets of two kinds may take turns. */
function hasMany(text: string, bracket: string, many = MAX_NESTING / 2): boolean {
  let at = -1;
  for (let count = 0; count < many; count++) {
    at = text.indexOf(bracket, at + 1);
    if (at === -1) return false;
  }
  return true;
}

function nestsDeeper(value: object, levels: number): boolean {
  if (levels === 0) return true;
  if (Array.isArray(value)) {
    return value.some(part => isParent(part) && nestsDeeper(part, levels - 1));
  }
  // Not Object.values, which would cost three times as much.
  for (const key in value) {
    const part: unknown = (value as Record<string, unknown>)[key];
    if (isParent(part) && nestsDeeper(part, levels - 1)) return true;
  }
  return false;
}

/** So many brackets of a kind nest too deep for JSON.parse to take it lightly, if they nest: 8 MiB of them hold it up for a second. */
const DENSE = 10_000;

/** The same of a text that is still to be parsed. Other texts than those of many brackets are left to `isTooDeep`, at less cost. */
export const isTooDeepToParse = (text: string): boolean =>
  (hasMany(text, '{', DENSE) || hasMany(text, '[', DENSE)) && depthOf(Buffer.from(text)) > MAX_NESTING;

const isParent = (value: unknown): value is object => typeof value === 'object' && value !== null;
