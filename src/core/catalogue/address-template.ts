/** A variable in a template. */
export const VARIABLE = /\{([A-Za-z_][\w-]{0,63})\}/g;
/** Limits a filled address to what servers commonly accept. */
const MAX_CHARS = 8 * 1024;

/** Returns the names of the variables in a template. */
export const namesIn = (template: string): string[] =>
  [...template.matchAll(VARIABLE)].flatMap(([, name]) => name ?? []);

interface Parts {
  /** Scheme and host, without variables. */
  readonly base: string;
  readonly path: string;
  readonly query: string;
}

/** Splits an address. Returns undefined if there are variables anywhere else than in its path and its query. */
function partsOf(template: string): Parts | undefined {
  const [, base = '', path = '', query = '', rest = ''] =
    /^(https?:\/\/[^/?#]*)([^?#]*)(?:\?([^#]*))?(.*)$/is.exec(template) ?? [];
  return base === '' || namesIn(base + rest).length > 0 ? undefined : { base, path, query };
}

/** Returns the names of the variables of an address, each once: those in its path, and all of them. */
export function addressVariables(address: string): { readonly inPath: string[]; readonly all: string[] } {
  const parts = address.includes('{') ? partsOf(address) : undefined;
  if (!parts) return { inPath: [], all: [] };
  const inPath = namesIn(parts.path);
  return { inPath: [...new Set(inPath)], all: [...new Set([...inPath, ...namesIn(parts.query)])] };
}

/** Returns whether an address can only be used once its variables are filled. */
export const isTemplate = (address: string): boolean => addressVariables(address).all.length > 0;

/** Returns why the variables of an address cannot be filled safely; undefined if they can, or if it has none. */
export function templateProblem(address: string, max: number): string | undefined {
  const names = namesIn(address);
  if (names.length === 0) return undefined;
  if (!partsOf(address)) return 'may have {variables} only in its path and its query';
  return names.length > max ? `may have at most ${max} {variables}` : undefined;
}

/**
 * Fills the variables of an address, percent-encoded. A query parameter with a variable that has no value is left out.
 * @returns undefined if the address would be another one than its template says, or too long
 */
export function fillAddress(address: string, values: ReadonlyMap<string, string>): URL | undefined {
  const parts = partsOf(address);
  if (!parts) return undefined;
  const { base, path, query } = parts;
  const filled = (text: string) =>
    text.replaceAll(VARIABLE, (_, name: string) => encodeURIComponent(values.get(name) ?? ''));
  const kept = query.split('&').filter(pair => namesIn(pair).every(name => values.has(name)));
  const search = filled(kept.join('&'));
  const url = URL.parse(`${base}${filled(path)}${search === '' ? '' : `?${search}`}`);
  const plain = new URL(base + path.replaceAll(VARIABLE, 'x'));
  // Dots must not lead out of a variable's own part of the path.
  const isSamePlace = url?.origin === plain.origin && partCount(url) === partCount(plain);
  return isSamePlace && url.href.length <= MAX_CHARS ? url : undefined;
}

const partCount = ({ pathname }: URL): number => pathname.split('/').length;
