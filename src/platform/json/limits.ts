/** Deeper JSON has no legitimate use, and recursive code could exhaust the stack on it. */
export const MAX_JSON_DEPTH = 200;

/** The structure of a JSON text, outside its strings. */
interface JsonShape {
  /** The deepest nesting of brackets. */
  readonly depth: number;
  /** Objects and arrays. */
  readonly containers: number;
  /** Members of objects. */
  readonly members: number;
}

/** Counts the elements of a JSON text before it is parsed, because parsing may take many times its size in memory. */
export function shapeOf(json: Uint8Array): JsonShape {
  let level = 0;
  let depth = 0;
  let containers = 0;
  let members = 0;
  let inString = false;
  for (let at = 0; at < json.length; at++) {
    const byte = json[at];
    if (inString) {
      if (byte === 0x5c) at++;
      else if (byte === 0x22) inString = false;
    } else if (byte === 0x22) inString = true;
    else if (byte === 0x3a) members++;
    else if (byte === 0x7b || byte === 0x5b) {
      containers++;
      depth = Math.max(depth, ++level);
    } else if (byte === 0x7d || byte === 0x5d) level--;
  }
  return { depth, containers, members };
}

/** This many brackets of one kind make JSON.parse slow if they are nested: 8 MiB of them take a second. */
const DENSE = 10_000;

/** Returns whether a text with very many brackets is nested more than 200 levels deep. For other texts `isTooDeep` is cheaper. */
export const isTooDeepToParse = (text: string): boolean =>
  text.length >= DENSE &&
  (hasMany(text, '{', DENSE) || hasMany(text, '[', DENSE)) &&
  shapeOf(Buffer.from(text)).depth > MAX_JSON_DEPTH;

/**
 * Returns whether a parsed JSON value is nested more than 200 levels deep. Texts with few brackets cannot be,
 * which is cheap to check, so only values with many objects are traversed.
 */
export const isTooDeep = (value: unknown, text: string): boolean =>
  isParent(value) && (hasMany(text, '{') || hasMany(text, '[')) && nestsDeeper(value, MAX_JSON_DEPTH);

/**
 * Returns whether a text has this many brackets. The default is half of the limit, because two kinds of brackets may alternate.
 */
function hasMany(text: string, bracket: string, many = MAX_JSON_DEPTH / 2): boolean {
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
  // Object.values would cost three times as much.
  for (const key in value) {
    const part: unknown = (value as Record<string, unknown>)[key];
    if (isParent(part) && nestsDeeper(part, levels - 1)) return true;
  }
  return false;
}

const isParent = (value: unknown): value is object => typeof value === 'object' && value !== null;

/** Returns whether a JSON value is an object: not null and not an array. */
export const isObject = (value: unknown): value is Record<string, unknown> =>
  isParent(value) && !Array.isArray(value);

/** `jsonSizeOf` treats deeper nesting as infinite. */
const MAX_SIZED_DEPTH = 128;

/**
 * Counts the values in a parsed JSON value, and its characters divided by `charsPerUnit`. Stops counting above `max`.
 * @returns Infinity for values nested more than 128 levels deep
 */
export function jsonSizeOf(root: unknown, charsPerUnit: number, max: number): number {
  let size = 0;
  const add = (value: unknown, depth: number): void => {
    size++;
    if (depth > MAX_SIZED_DEPTH) size = Infinity;
    if (typeof value === 'string') size += Math.floor(value.length / charsPerUnit);
    else if (Array.isArray(value)) {
      for (const member of value) {
        if (size > max) return;
        add(member, depth + 1);
      }
    } else if (typeof value === 'object' && value !== null) {
      for (const name in value) {
        if (size > max) return;
        size += Math.floor(name.length / charsPerUnit);
        add((value as Readonly<Record<string, unknown>>)[name], depth + 1);
      }
    }
  };
  add(root, 0);
  return size;
}

/** Returns whether a text can be stored: Postgres takes neither NUL nor unpaired surrogates, which JSON may contain. */
export const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes('\0');

/** JSON text in parts, to be sent as it is: joining them would copy a large one. */
export class JsonParts {
  readonly parts: readonly Buffer[];

  constructor(...parts: readonly (Buffer | string)[]) {
    this.parts = parts.map(part => (typeof part === 'string' ? Buffer.from(part) : part));
  }

  get byteLength(): number {
    return this.parts.reduce((sum, part) => sum + part.length, 0);
  }
}
