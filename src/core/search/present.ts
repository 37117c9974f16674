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
  /** What a caller should know before calling it (docs/tools.md); absent when there is nothing to know. */
  readonly warnings?: readonly string[];
}

/** A server of an answer, in the fields of the wire contract. */
export interface FoundServer {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly remote_url: string;
  readonly access: Access;
  /** Ordered by relevance to the query. */
  readonly tools: readonly FoundTool[];
  readonly scores: { readonly semantic: number; readonly popularity: number };
  readonly final_score: number;
  /** True when its registry says that it should no longer be used. */
  readonly deprecated?: true;
  /** The registry's reason: text written by others. */
  readonly status_message?: string;
  /** Result of its last health check; absent when there was none. */
  readonly health?: ShownHealth;
}

interface PresentOptions {
  /** Most tools to show; all when undefined. */
  readonly maxTools: number | undefined;
  /** See `SearchInput`. */
  readonly nearBest: number | undefined;
  readonly nowMs: number;
  readonly health: Health | undefined;
}

/** Renders a ranked server in the fields of the wire contract. */
export const presentServer = (
  server: Server,
  ranked: RankedServer,
  options: PresentOptions,
): FoundServer => ({
  id: server.id,
  name: server.name,
  description: server.description,
  remote_url: server.remoteUrl,
  access: accessOf(server),
  tools: toolsOf(server, ranked, options).map(tool => presentTool(tool, options.nowMs)),
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

function presentTool(tool: CataloguedTool, nowMs: number): FoundTool {
  const warnings = warningsOf(tool, nowMs);
  return { ...bareTool(tool), ...(warnings.length === 0 ? {} : { warnings }) };
}

/** Orders the tools as ranked. A server rewritten since may have fewer tools, or more; those come last. */
function toolsOf(
  { tools }: Server,
  ranked: RankedServer,
  { maxTools, nearBest }: PresentOptions,
): CataloguedTool[] {
  const positions =
    nearBest === undefined ? [...ranked.toolOrder, ...tools.keys()] : positionsNearBest(ranked, nearBest);
  return [...new Set(positions)].flatMap(position => tools[position] ?? []).slice(0, maxTools);
}

function positionsNearBest({ toolOrder, toolRelevance }: RankedServer, share: number): number[] {
  const least = (toolRelevance[0] ?? 0) * share;
  return toolOrder.filter((_position, at) => (toolRelevance[at] ?? 0) >= least);
}
