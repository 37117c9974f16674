/** Deeper, an answer is an attack on whoever writes it out or walks through it, not data. */
const MAX_NESTING = 200;

/**
 * Whether a parsed JSON value nests deeper than 200 levels. A text with few brackets cannot, which a search finds out at
 * next to no cost: only values with many objects are walked through.
 */
export const isTooDeep = (value: unknown, text: string): boolean =>
  isParent(value) && (hasMany(text, '{') || hasMany(text, '[')) && nestsDeeper(value, MAX_NESTING);

/** Half of the limit, as brackets of two kinds may take turns. */
function hasMany(text: string, bracket: string): boolean {
  let at = -1;
  for (let count = 0; count < MAX_NESTING / 2; count++) {
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

const isParent = (value: unknown): value is object => typeof value === 'object' && value !== null;
