import { sanitise } from '../../platform/sanitize.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Endpoint, PathParams } from './endpoint.ts';

interface Route {
  /** Absent: nothing here takes this method. */
  readonly endpoint: Endpoint | undefined;
  readonly params: PathParams;
  /** The methods that the path takes, where there is no endpoint. Empty: the path does not exist. */
  readonly allowed: readonly string[];
}

export type FindRoute = (method: string, path: string) => Route;

/**
 * Returns the function that finds the endpoint of a request. It matches a path byte for byte; a GET endpoint answers HEAD too. It
 * throws `invalid_request` for a parameter that is not percent-encoded UTF-8.
 */
export function routerOf(endpoints: readonly Endpoint[]): FindRoute {
  const byPath = Map.groupBy(endpoints, ({ path }) => path);
  /** The segments of each path with parameters; those that start with a colon are names. */
  const patterns = [...byPath.keys()].filter(path => path.includes(':')).map(path => path.split('/'));
  return (method, path) => {
    const exact = path.includes(':') ? [] : (byPath.get(path) ?? []);
    const named = exact.find(one => takes(one, method));
    if (named) return { endpoint: named, params: {}, allowed: [] };
    const segments = path.split('/');
    const pattern = patterns.find(
      names =>
        names.length === segments.length &&
        names.every((name, at) => (name.startsWith(':') ? segments[at] !== '' : name === segments[at])),
    );
    // A server may be called `import`: a method that the path itself does not take may be for the entry of that id.
    const atPattern = pattern ? (byPath.get(pattern.join('/')) ?? []) : [];
    const params = (pattern ?? []).flatMap((name, at) =>
      name.startsWith(':') ? [[name.slice(1), decode(segments[at] ?? '')] as const] : [],
    );
    return {
      endpoint: atPattern.find(one => takes(one, method)),
      params: Object.fromEntries(params),
      allowed: [...exact, ...atPattern].map(one => one.method.toUpperCase()),
    };
  };
}

const takes = (one: Endpoint, method: string) =>
  one.method === (method === 'HEAD' ? 'get' : method.toLowerCase());

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch (cause) {
    throw new SwitchboardError(
      'invalid_request',
      `The path holds ${sanitise(segment)}, which cannot be decoded.`,
      { cause },
    );
  }
}
