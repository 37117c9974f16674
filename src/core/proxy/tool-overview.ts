import { sanitise } from '../text.ts';
import { nearest } from '../nearest.ts';

const MAX_SUGGESTIONS = 3;
/** What an agent can bear to read after a wrong guess. */
const MAX_CHARS = 4_000;
const MAX_NAMES = 50;
const MAX_DESCRIPTION = 80;
const MAX_SCHEMAS = 2;

export interface KnownTool {
  readonly name: string;
  readonly description: string;
  readonly schema: unknown;
}

/**
 * What a server has in place of a tool that it has not: what was probably meant, all names (nearest first) and the input
 * schemas of the nearest, as far as they fit.
 */
export function overviewOf(name: string, tools: readonly KnownTool[]): string {
  if (tools.length === 0) return ' It lists none at all.';
  const byName = new Map(tools.map(tool => [tool.name, tool]));
  const near = nearest(name, byName.keys(), MAX_NAMES);
  const likely = near.slice(0, MAX_SUGGESTIONS);
  const ordered = [...new Set([...near, ...byName.keys()])];
  const start = likely.length === 0 ? '' : ` Did you mean ${likely.map(quoted).join(' or ')}?`;
  const schemas = likely
    .slice(0, MAX_SCHEMAS)
    .map(one => `\nThe input schema of ${quoted(one)}: ${JSON.stringify(byName.get(one)?.schema)}`);
  const lines = ordered.slice(0, MAX_NAMES).map(one => {
    const description = sanitise(byName.get(one)?.description ?? '', MAX_DESCRIPTION);
    return `\n- ${quoted(one)}${description === '' ? '' : `: ${description}`}`;
  });
  const names = fitting(lines, MAX_CHARS - 200);
  const more = ordered.length - names.length;
  const list = `${start} It has${more > 0 ? ` ${ordered.length} tools, ${more} of which are not shown` : ''}:${names.join('')}`;
  return list + fitting(schemas, MAX_CHARS - list.length).join('');
}

/** The first of the lines that have room. */
function fitting(lines: readonly string[], room: number): string[] {
  let used = 0;
  return lines.filter(line => {
    used += line.length;
    return used <= room;
  });
}

export const quoted = (name: string) => JSON.stringify(sanitise(name, 80));
