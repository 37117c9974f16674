import { isDeepStrictEqual } from 'node:util';
import { cleanText } from '../../platform/sanitize.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { slices, type Pause } from '../../platform/time.ts';
import type { PutOptions } from './changes.ts';
import {
  bareTool,
  keepingLearned,
  type CataloguedTool,
  type Entry,
  type Origin,
  type RegistryMark,
  type Server,
  type Tool,
} from './entry.ts';
import { cleanTool } from './tools/definitions.ts';
import { logSuspicious } from './tools/store.ts';

/** Returns the servers of the entries by id. Of duplicate ids, the last entry wins. */
export async function toServers(
  entries: readonly Entry[],
  { origin, registry, keepsTools, signal }: PutOptions,
  known: ReadonlyMap<string, Server>,
  log: Log | undefined,
): Promise<Map<string, Server>> {
  const pause = slices(signal);
  const wanted = new Map<string, Server>();
  for (const entry of entries) {
    await pause();
    const { server, leftOut } = await toServer(entry, origin, {
      known: known.get(entry.id),
      registry: registry?.marks.get(entry.id),
      keepsTools,
      pause,
    });
    for (const tool of leftOut)
      log?.warn(
        { serverId: server.id, tool, reason: 'invisible characters in its name' },
        'skipped a tool of a catalogue entry',
      );
    logSuspicious(log, server, known.get(server.id));
    wanted.set(entry.id, server);
  }
  return wanted;
}

/**
 * Returns the server of an entry, with cleaned texts. Of duplicate tool names, the last definition wins and takes the first
 * one's place. Tools whose names cannot be cleaned are skipped.
 * @param options.known the catalogued server of that id: unchanged parts are shared, to save memory
 */
export async function toServer(
  entry: Entry,
  origin: Origin,
  { known, registry, keepsTools, pause = slices() }: Beginnings & { readonly pause?: Pause } = {},
): Promise<{ server: Server; leftOut: string[] }> {
  const knownTools = new Map(known?.tools.map(tool => [tool.name, tool]));
  const tools = new Map<string, CataloguedTool | undefined>();
  for (const tool of entry.tools ?? []) {
    const same = knownTools.get(tool.name);
    tools.set(tool.name, same && isUnchanged(same, tool) ? same : cleanTool(tool));
    await pause();
  }
  const bare = withTools(
    entry,
    origin,
    [...tools.values()].filter(tool => tool !== undefined),
  );
  const server = keepingLearned(completed(bare, { known, registry, keepsTools }), known);
  return {
    server: known && isDeepStrictEqual(known, server) ? known : server,
    leftOut: [...tools].flatMap(([name, tool]) => (tool ? [] : cleanText(name).slice(0, 100))),
  };
}

const withTools = (entry: Entry, origin: Origin, tools: readonly CataloguedTool[]): Server => ({
  id: entry.id,
  name: cleanText(entry.name) || entry.id,
  description: cleanText(entry.description),
  remoteUrl: entry.remote_url,
  ...(entry.transport === undefined ? {} : { transport: entry.transport }),
  auth: entry.auth ?? { kind: 'unknown' },
  ...(entry.homepage === undefined ? {} : { homepage: entry.homepage }),
  ...(entry.repository === undefined ? {} : { repository: entry.repository }),
  categories: entry.categories ?? [],
  ...cleanedTexts('examples', entry.examples),
  ...cleanedTexts('integrations', entry.integrations),
  tools,
  origin,
  active: true,
});

function cleanedTexts(name: 'examples' | 'integrations', texts: readonly string[] = []): Partial<Server> {
  const cleaned = texts.map(cleanText).filter(text => text !== '');
  return cleaned.length === 0 ? {} : { [name]: cleaned };
}

/** Everything besides its entry that a server is made of. */
interface Beginnings {
  readonly known?: Server | undefined;
  readonly registry?: RegistryMark | undefined;
  /** Default: for servers of a registry, which lists no tools. */
  readonly keepsTools?: boolean | undefined;
}

const completed = (
  bare: Server,
  { known, registry, keepsTools = registry !== undefined }: Beginnings,
): Server => ({
  ...bare,
  ...(keepsTools ? toolsStaying(bare, known) : {}),
  ...(registry ? { registry } : {}),
});

/** Returns the tools that are known of the same address. */
function toolsStaying({ remoteUrl }: Server, known: Server | undefined): Partial<Server> {
  if (known?.remoteUrl !== remoteUrl) return {};
  const { tools, toolsListedAt } = known;
  return { tools, ...(toolsListedAt === undefined ? {} : { toolsListedAt }) };
}

/** Returns the entry, with unchanged texts and schemas replaced by those of the catalogued server, to save memory. */
export function sharing(entry: Entry, known: Server | undefined): Entry {
  if (!known || !entry.tools) return entry;
  const knownTools = new Map(known.tools.map(tool => [tool.name, tool]));
  const tools = entry.tools.map(tool => {
    const same = knownTools.get(tool.name);
    return same && isUnchanged(same, tool) ? bareTool(same) : tool;
  });
  return { ...entry, tools };
}

/**
 * Returns true if cleaning an entry's tool would give the catalogued one again. Text of a suspicious tool may have been
 * cleaned away.
 */
const isUnchanged = (known: CataloguedTool, tool: Tool): boolean =>
  known.suspicious === undefined &&
  known.live === undefined &&
  known.description === tool.description &&
  isDeepStrictEqual(known.annotations, tool.annotations) &&
  isDeepStrictEqual(known.input_schema, tool.input_schema);
