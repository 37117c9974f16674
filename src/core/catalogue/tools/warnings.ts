import { hashOf, type Definition } from './definitions.ts';
import type { CataloguedTool, Server } from '../entry.ts';

/** How long a changed definition is marked: long enough that whoever uses the tool weekly sees it. */
const CHANGED_MARK_MS = 7 * 86_400_000;

/** What to know of a tool before it is called: `definition_changed`, `suspicious:<rule id>` (docs/tools.md). */
export const warningsOf = ({ suspicious = [], live }: CataloguedTool, nowMs: number): string[] => [
  ...(live?.changedAt !== undefined && nowMs - live.changedAt < CHANGED_MARK_MS
    ? ['definition_changed']
    : []),
  ...suspicious.map(id => `suspicious:${id}`),
];

/**
 * A server's listing with what is known of its tools. A definition that is
 * not the last live one of its name is marked as changed before the catalogue has it.
 */
export function warnedTools<T extends Definition>(
  { tools, toolsListedAt }: Pick<Server, 'tools' | 'toolsListedAt'>,
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
