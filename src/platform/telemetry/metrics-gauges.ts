import { Gauge, type Registry } from 'prom-client';

/** What is asked how it stands at each scrape, and the states that are told apart. */
const GAUGES = {
  switchboard_upstream_sessions: {
    help: 'Open sessions with MCP servers of revisions that have some.',
    states: ['busy', 'idle'],
  },
  switchboard_upstream_circuits: {
    help: 'MCP servers, each also by tenant, that calls are held back from since they failed repeatedly (open), or that failed lately (closed).',
    states: ['open', 'closed'],
  },
  switchboard_upstream_slots: {
    help: 'Calls to MCP servers that are under way (busy), or wait as too many to one origin are.',
    states: ['busy', 'waiting'],
  },
  switchboard_servers: {
    help: 'Servers of the catalogue by what the last visit found; unvisited: there was none yet; inactive: taken out for having no answer.',
    states: ['ok', 'needs_sign_in', 'not_mcp', 'unreachable', 'unvisited', 'inactive'],
  },
  switchboard_search_slots: {
    help: 'Searches whose ranking is computed (busy), or that wait as too many are.',
    states: ['busy', 'waiting'],
  },
  switchboard_database_pool: {
    help: 'Connections to Postgres that are in use (busy) or idle, and queries that wait for one.',
    states: ['busy', 'idle', 'waiting'],
  },
} as const;

export type GaugeName = keyof typeof GAUGES;
export type Standing<Name extends GaugeName> = Readonly<
  Record<(typeof GAUGES)[Name]['states'][number], number>
>;

/** @param read is called at each scrape and must not throw */
export function watch<Name extends GaugeName>(
  registry: Registry,
  name: Name,
  read: () => Standing<Name>,
): void {
  const { help } = GAUGES[name];
  void new Gauge({
    name,
    help,
    labelNames: ['state'],
    registers: [registry],
    collect() {
      for (const [state, value] of Object.entries<number>(read())) this.set({ state }, value);
    },
  });
}
