import { SwitchboardError } from '../../../errors.ts';
import { nearest } from '../../../platform/closest-names.ts';
import { sanitise } from '../../../platform/sanitize.ts';
import type { Server } from '../entry.ts';

const MAX_NAMES = 20;
const MAX_NAME_CHARS = 80;

/**
 * The names of a server's tools, where they are known and the same for everybody; else undefined. A server that acts for end users may show
 * each of them other tools.
 */
export const knownTools = (server: Server | undefined): readonly string[] | undefined =>
  server === undefined || server.tools.length === 0 || server.auth.kind === 'user_oauth'
    ? undefined
    : server.tools.map(({ name }) => name);

/** What to say of a tool that is none of these. */
export function unknownTool(tool: string, known: readonly string[]): SwitchboardError {
  const near = nearest(tool, known, MAX_NAMES);
  const names = [...new Set([...near, ...known])];
  const [likely] = near;
  const meant = likely === undefined ? '' : ` Did you mean ${quoted(likely)}?`;
  const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : '';
  return new SwitchboardError(
    'invalid_request',
    `tool: this server has no tool ${quoted(tool)}.${meant} It has ${names.slice(0, MAX_NAMES).map(quoted).join(', ')}${more}. Without tool, the verdict is on the server as a whole.`,
  );
}

const quoted = (name: string): string => JSON.stringify(sanitise(name, MAX_NAME_CHARS));
