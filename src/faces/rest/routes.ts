import { SwitchboardError } from '../../errors.ts';
import type { Endpoint } from './endpoint.ts';
import { endpoints } from './endpoints/index.ts';

export interface Route {
  /** Absent: nothing here takes this method. */
  readonly endpoint: Endpoint | undefined;
  readonly params: Readonly<Record<string, string>>;
  /** The methods that the path takes; empty for a path that does not exist. */
  readonly allowed: readonly string[];
}

const byPath = Map.groupBy(endpoints, ({ path }) => path);

/** Paths with parameters: their segments, those that start with a colon being names. */
const patterns = [...byPath.keys()].filter(path => path.includes(':')).map(path => path.split('/'));

/**
 * What a path leads to. A path is matched byte for byte; a GET endpoint answers HEAD, too.
 * @throws SwitchboardError `invalid_request` for a parameter that is no percent-encoded UTF-8.
 */
export function findRoute(method: string, path: string): Route {
  const exact = byPath.get(path);
  if (exact && !path.includes(':')) return routeOf(method, exact, {});
  const segments = path.split('/');
  const pattern = patterns.find(
    names =>
      names.length === segments.length &&
      names.every((name, at) => (name.startsWith(':') ? segments[at] !== '' : name === segments[at])),
  );
  if (!pattern) return { endpoint: undefined, params: {}, allowed: [] };
  const params = pattern.flatMap((name, at) =>
    name.startsWith(':') ? [[name.slice(1), decode(segments[at] ?? '')] as const] : [],
  );
  return routeOf(method, byPath.get(pattern.join('/')) ?? [], Object.fromEntries(params));
}

function routeOf(method: string, atPath: readonly Endpoint[], params: Route['params']): Route {
  const wanted = method === 'HEAD' ? 'get' : method.toLowerCase();
  return {
    endpoint: atPath.find(one => one.method === wanted),
    params,
    allowed: atPath.map(one => one.method.toUpperCase()),
  };
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch (cause) {
    throw new SwitchboardError('invalid_request', `The path holds ${segment}, which cannot be decoded.`, {
      cause,
    });
  }
}
