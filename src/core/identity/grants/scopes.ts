import type { Scope } from '../../access/caller.ts';

/** What an MCP client may ask for, with the scope of a key that it becomes. */
export const MCP_SCOPES: ReadonlyMap<string, Scope> = new Map([
  ['mcp:search', 'search'],
  ['mcp:call', 'proxy'],
]);

/** Returns the scopes for MCP clients among the names of an OAuth `scope`, which may have others. */
export const mcpScopesIn = (scope: string | undefined): readonly string[] => [
  ...new Set((scope ?? '').split(' ').filter(name => MCP_SCOPES.has(name))),
];

export const keyScopesOf = (names: readonly string[]): readonly Scope[] =>
  names.flatMap(name => MCP_SCOPES.get(name) ?? []);
