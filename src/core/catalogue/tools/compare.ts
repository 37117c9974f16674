import { isDeepStrictEqual } from 'node:util';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { CataloguedTool, Server } from '../entry.ts';

/** Logs what is suspicious, once a definition: what stood there before was reported then. */
export function reportSuspicious(
  log: Log | undefined,
  { id, tools }: Pick<Server, 'id' | 'tools'>,
  before: Pick<Server, 'tools'> | undefined,
): void {
  const known = new Map(before?.tools.map(tool => [tool.name, tool]));
  for (const tool of tools) {
    const old = known.get(tool.name);
    if (tool.suspicious && !(old && sameText(old, tool)))
      log?.warn({ serverId: id, tool: tool.name, rules: tool.suspicious }, 'suspicious tool definition');
  }
}

/** Whether two lists of definitions are the same to search and to whoever reads them. */
export const sameTexts = (a: readonly CataloguedTool[], b: readonly CataloguedTool[]): boolean =>
  a.length === b.length && a.every((tool, at) => sameText(tool, b[at]));

const sameText = (a: CataloguedTool, b: CataloguedTool | undefined): boolean =>
  a.name === b?.name &&
  a.description === b.description &&
  isDeepStrictEqual(a.annotations, b.annotations) &&
  JSON.stringify(a.input_schema) === JSON.stringify(b.input_schema);

/** Those listed, of which at most so many, the first, are new or changed: others stay what they were, or out. */
export function newsWithin(
  maxNews: number,
  listed: readonly CataloguedTool[],
  known: readonly CataloguedTool[],
): CataloguedTool[] {
  const before = new Map(known.map(tool => [tool.name, tool]));
  let news = 0;
  return listed.flatMap(tool => {
    const old = before.get(tool.name);
    if (old && sameText(old, tool)) return tool;
    return news++ < maxNews ? tool : (old ?? []);
  });
}
