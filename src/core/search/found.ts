import type { CataloguedTool, Server, Tool } from '../catalogue/entry.ts';
import { shownHealth, type Health, type ShownHealth } from '../catalogue/health.ts';
import { warningsOf } from '../catalogue/tool-warnings.ts';
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

/** @param maxTools all of them, where it is absent */
export const render = (
  server: Server,
  ranked: RankedServer,
  { maxTools, nowMs, health }: { maxTools: number | undefined; nowMs: number; health: Health | undefined },
): FoundServer => ({
  id: server.id,
  name: server.name,
  description: server.description,
  remote_url: server.remoteUrl,
  tools: orderTools(server.tools, ranked.toolOrder)
    .slice(0, maxTools)
    .map(tool => renderTool(tool, nowMs)),
  scores: { semantic: ranked.semantic, popularity: ranked.popularity },
  final_score: ranked.finalScore,
  ...deprecationOf(server.registry),
  ...(health ? { health: shownHealth(health) } : {}),
});

const deprecationOf = (mark: Server['registry']): Pick<FoundServer, 'deprecated' | 'status_message'> => {
  if (mark?.status !== 'deprecated') return {};
  return {
    deprecated: true,
    ...(mark.statusMessage === undefined ? {} : { status_message: mark.statusMessage }),
  };
};

function renderTool(tool: CataloguedTool, nowMs: number): FoundTool {
  const { name, description, input_schema } = tool;
  const warnings = warningsOf(tool, nowMs);
  return { name, description, input_schema, ...(warnings.length === 0 ? {} : { warnings }) };
}

/** By the ranking's order; a server rewritten since the ranking may have fewer tools, or more: those come last. */
function orderTools(tools: readonly CataloguedTool[], order: readonly number[]): CataloguedTool[] {
  const ranked = new Set(order.filter(position => position < tools.length));
  for (const position of tools.keys()) ranked.add(position);
  return [...ranked].flatMap(position => tools[position] ?? []);
}
