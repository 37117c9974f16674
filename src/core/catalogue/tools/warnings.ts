import { SwitchboardError } from '../../../errors.ts';
import { nearest } from '../../../platform/closest-names.ts';
import { sanitise } from '../../../platform/sanitize.ts';
import type { CalledServer, CataloguedTool } from '../entry.ts';
import { hashOf, type Definition } from './definitions.ts';

/** A changed definition is marked for a week, so that weekly users of the tool see it. */
const CHANGED_MARK_MS = 7 * 86_400_000;

/** Returns the warnings of a tool: `definition_changed`, `suspicious:<rule id>` (docs/tools.md). */
export const warningsOf = ({ suspicious = [], live }: CataloguedTool, nowMs: number): string[] => [
  ...(live?.changedAt !== undefined && nowMs - live.changedAt < CHANGED_MARK_MS
    ? ['definition_changed']
    : []),
  ...suspicious.map(id => `suspicious:${id}`),
];

/**
 * Returns a server's listing with warnings. A definition that differs from the last live one is marked as changed even before
 * it is stored.
 */
export function warnedTools<T extends Definition>(
  { tools = [], toolsListedAt }: Pick<CalledServer, 'tools' | 'toolsListedAt'>,
  listed: readonly T[],
  nowMs: number,
): T[] {
  if (toolsListedAt === undefined) return [...listed];
  const known = new Map(tools.map(tool => [tool.name, tool]));
  return listed.map(definition => {
    const tool = known.get(definition.name);
    if (!tool) return definition;
    const isSame = tool.live?.hash === hashOf(definition);
    const warnings = isSame ? warningsOf(tool, nowMs) : ['definition_changed'];
    return warnings.length === 0 ? definition : Object.assign({}, definition, { warnings });
  });
}

const MAX_NAMES = 20;
const MAX_NAME_CHARS = 80;

/**
 * Returns the names of a server's tools if they are known and the same for all callers, otherwise undefined. A server that
 * acts for end users may show each of them different tools.
 */
export const knownTools = (server: CalledServer | undefined): readonly string[] | undefined =>
  !server?.tools || server.tools.length === 0 || server.auth.kind === 'user_oauth'
    ? undefined
    : server.tools.map(({ name }) => name);

/** Returns the error for a tool that the server does not have, with similar names. */
export function unknownTool(tool: string, known: readonly string[]): SwitchboardError {
  const near = nearest(tool, known, MAX_NAMES);
  const names = [...new Set([...near, ...known])];
  const [likely] = near;
  const meant = likely === undefined ? '' : ` Did you mean ${quoted(likely)}?`;
  const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : '';
  return new SwitchboardError(
    'invalid_request',
    `tool: this server has no tool ${quoted(tool)}.${meant} It has ${names.slice(0, MAX_NAMES).map(quoted).join(', ')}${more}. Omit tool to give feedback on the whole server.`,
  );
}

const quoted = (name: string): string => JSON.stringify(sanitise(name, MAX_NAME_CHARS));
