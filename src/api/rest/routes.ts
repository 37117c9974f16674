import { sanitise } from '../../platform/sanitize.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Endpoint } from './endpoint.ts';
import { endpoints } from './endpoints/index.ts';

export interface Route {
  /** Absent: nothing here takes this method. */
  readonly endpoint: Endpoint | undefined;
  readonly params: Readonly<Record<string, string>>;
  /** Where there is no endpoint, the methods that the path takes; empty for a path that does not exist. */
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
  const exact = path.includes(':') ? [] : (byPath.get(path) ?? []);
  const named = exact.find(one => isOf(one, method));
  if (named) return { endpoint: named, params: {}, allowed: [] };
  const segments = path.split('/');
  const pattern = patterns.find(
    names =>
      names.length === segments.length &&
      names.every((name, at) => (name.startsWith(':') ? segments[at] !== '' : name === segments[at])),
  );
  // A server may be called `import`: what the path itself does not take may be for the entry of that id.
  const atPattern = pattern ? (byPath.get(pattern.join('/')) ?? []) : [];
  const params = (pattern ?? []).flatMap((name, at) =>
    name.startsWith(':') ? [[name.slice(1), decode(segments[at] ?? '')] as const] : [],
  );
  return {
    endpoint: atPattern.find(one => isOf(one, method)),
    params: Object.fromEntries(params),
    allowed: [...exact, ...atPattern].map(one => one.method.toUpperCase()),
  };
}

const isOf = (one: Endpoint, method: string) =>
  one.method === (method === 'HEAD' ? 'get' : method.toLowerCase());

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch (cause) {
    throw new SwitchboardError(
      'invalid_request',
      `The path holds ${sanitise(segment)}, which cannot be decoded.`,
      {
        cause,
      },
    );
  }
}
