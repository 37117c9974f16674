import type { Annotations } from '../catalogue/entry.ts';
import { cleanSchema } from '../catalogue/tools/definitions.ts';
import { suspicionsOf } from '../catalogue/tools/suspicious.ts';
import { fitting, isPlain, sanitise } from '../../platform/sanitize.ts';
import { isObject } from './upstream/json.ts';
import { nearest } from '../../platform/closest-names.ts';

const MAX_SUGGESTIONS = 3;
/** What an agent can bear to read after a wrong guess. */
const MAX_CHARS = 4_000;
const MAX_NAMES = 50;
const MAX_DESCRIPTION = 80;
const MAX_SCHEMAS = 2;
/** Reserved for them: without the schema of what was meant, the next call is a guess again. */
const MAX_SCHEMA_CHARS = 2_000;

export interface KnownTool {
  readonly name: string;
  readonly description: string;
  readonly schema: unknown;
  readonly annotations?: Annotations | undefined;
}

/**
 * What a server has in place of a tool that it has not: what was probably meant, all names (nearest first) and the input
 * schemas of the nearest, as far as they fit.
 */
export function overviewOf(name: string, listed: readonly KnownTool[]): string {
  // A name with invisible characters cannot be called as it is shown.
  const tools = listed.filter(tool => isPlain(tool.name));
  if (tools.length === 0) return ' It lists none at all.';
  const byName = new Map(tools.map(tool => [tool.name, tool]));
  const near = nearest(name, byName.keys(), MAX_NAMES);
  const likely = near.slice(0, MAX_SUGGESTIONS);
  const ordered = [...new Set([...near, ...byName.keys()])];
  const start = likely.length === 0 ? '' : ` Did you mean ${likely.map(quoted).join(' or ')}?`;
  const schemas = fitting(
    likely.slice(0, MAX_SCHEMAS).map(one => {
      const schema = byName.get(one)?.schema;
      const isKnown = isObject(schema) && Object.keys(schema).length > 0 && suspicionsOf(schema).length === 0;
      return isKnown ? `\nThe input schema of ${quoted(one)}: ${JSON.stringify(cleanSchema(schema))}` : '';
    }),
    MAX_SCHEMA_CHARS,
  ).join('');
  const lines = ordered.slice(0, MAX_NAMES).map(one => {
    const tool = byName.get(one);
    const description = sanitise(tool?.description ?? '', MAX_DESCRIPTION);
    return `\n- ${quoted(one)}${effectOf(tool)}${description === '' ? '' : `: ${description}`}`;
  });
  const names = fitting(lines, MAX_CHARS - 200 - schemas.length);
  const more = ordered.length - names.length;
  return `${start} It has${more > 0 ? ` ${ordered.length} tools, ${more} of which are not shown` : ''}:${names.join('')}${schemas}`;
}

const effectOf = (tool: KnownTool | undefined): string => {
  if (tool?.annotations?.destructiveHint === true) return ' (destructive)';
  return tool?.annotations?.readOnlyHint === true ? ' (read-only)' : '';
};

export const quoted = (name: string) => JSON.stringify(sanitise(name, 80));
