import {
  accessOf,
  bareTool,
  type Access,
  type CataloguedTool,
  type Server,
  type Tool,
} from '../catalogue/entry.ts';
import { shownHealth, type Health, type ShownHealth } from '../catalogue/health.ts';
import { warningsOf } from '../catalogue/tools/warnings.ts';
import type { RankedServer } from './ranking.ts';

/** A tool of an answer, in the fields of the wire contract. */
interface FoundTool extends Tool {
  /** What to know before it is called (docs/tools.md); absent: nothing. */
  readonly warnings?: readonly string[];
}

/** One server of an answer, in the fields of the wire contract. */
export interface FoundServer {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly remote_url: string;
  readonly access: Access;
  /** By relevance to the query. */
  readonly tools: readonly FoundTool[];
  readonly scores: { readonly semantic: number; readonly popularity: number };
  readonly final_score: number;
  /** Its registry says that it should no longer be used; absent: no. */
  readonly deprecated?: true;
  /** What the registry says to that: text of others. */
  readonly status_message?: string;
  /** What the last visit of it found; absent: there was none. */
  readonly health?: ShownHealth;
}

interface RenderOptions {
  /** Absent: all of them. */
  readonly maxTools: number | undefined;
  /** See `SearchInput`. */
  readonly nearBest: number | undefined;
  readonly nowMs: number;
  readonly health: Health | undefined;
}

export const render = (server: Server, ranked: RankedServer, options: RenderOptions): FoundServer => ({
  id: server.id,
  name: server.name,
  description: server.description,
  remote_url: server.remoteUrl,
  access: accessOf(server),
  tools: toolsOf(server, ranked, options).map(tool => renderTool(tool, options.nowMs)),
  scores: { semantic: ranked.semantic, popularity: ranked.popularity },
  final_score: ranked.finalScore,
  ...deprecationOf(server.registry),
  ...(options.health ? { health: shownHealth(options.health) } : {}),
});

const deprecationOf = (mark: Server['registry']): Pick<FoundServer, 'deprecated' | 'status_message'> => {
  if (mark?.status !== 'deprecated') return {};
  return {
    deprecated: true,
    ...(mark.statusMessage === undefined ? {} : { status_message: mark.statusMessage }),
  };
};

function renderTool(tool: CataloguedTool, nowMs: number): FoundTool {
  const warnings = warningsOf(tool, nowMs);
  return { ...bareTool(tool), ...(warnings.length === 0 ? {} : { warnings }) };
}

/** By the ranking's order; a server rewritten since the ranking may have fewer tools, or more: those come last. */
function toolsOf(
  { tools }: Server,
  ranked: RankedServer,
  { maxTools, nearBest }: RenderOptions,
): CataloguedTool[] {
  const positions =
    nearBest === undefined ? [...ranked.toolOrder, ...tools.keys()] : positionsNearBest(ranked, nearBest);
  return [...new Set(positions)].flatMap(position => tools[position] ?? []).slice(0, maxTools);
}

function positionsNearBest({ toolOrder, toolRelevance }: RankedServer, share: number): number[] {
  const least = (toolRelevance[0] ?? 0) * share;
  return toolOrder.filter((_position, at) => (toolRelevance[at] ?? 0) >= least);
}
