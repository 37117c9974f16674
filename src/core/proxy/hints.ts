import { askOperator, type SwitchboardError } from '../../errors.ts';
import { nearest } from '../../platform/closest-names.ts';
import { asSentence, fitting, isPlain, sanitise } from '../../platform/sanitize.ts';
import type { Annotations, AuthSpec, ServerHead } from '../catalogue/entry.ts';
import { cleanSchema } from '../catalogue/tools/definitions.ts';
import { suspicionsOf } from '../catalogue/tools/suspicious.ts';
import { restated } from './upstream/failures.ts';
import { isObject } from '../../platform/json/limits.ts';

const MAX_SUGGESTIONS = 3;
/** The maximum length of the text after a wrong guess. */
const MAX_CHARS = 4_000;
const MAX_NAMES = 50;
const MAX_DESCRIPTION = 80;
const MAX_SCHEMAS = 2;
/** Space reserved for schemas: without the schema of the intended tool, the next call is a guess again. */
const MAX_SCHEMA_CHARS = 2_000;

export interface KnownTool {
  readonly name: string;
  readonly description: string;
  readonly schema: unknown;
  readonly annotations?: Annotations | undefined;
}

/**
 * Describes the tools of a server without a tool of that name: the likely one, all names (most similar first) and the input
 * schemas of the most similar, as far as they fit.
 */
export function overviewOf(name: string, listed: readonly KnownTool[]): string {
  // A name with invisible characters cannot be called as displayed.
  const tools = listed.filter(tool => isPlain(tool.name));
  if (tools.length === 0) return ' It lists no tools.';
  const byName = new Map(tools.map(tool => [tool.name, tool]));
  const near = nearest(name, byName.keys(), MAX_NAMES);
  const likely = near.slice(0, MAX_SUGGESTIONS);
  const ordered = [...new Set([...near, ...byName.keys()])];
  const start = likely.length === 0 ? '' : ` Did you mean ${likely.map(quoted).join(' or ')}?`;
  const schemas = fitting(
    likely.slice(0, MAX_SCHEMAS).map(one => {
      const schema = byName.get(one)?.schema;
      const isKnown = isObject(schema) && Object.keys(schema).length > 0 && suspicionsOf(schema).length === 0;
      return isKnown ? `\nThe input schema of ${quoted(one)}: ${JSON.stringify(cleanSchema(schema))}` : '';
    }),
    MAX_SCHEMA_CHARS,
  ).join('');
  const lines = ordered.slice(0, MAX_NAMES).map(one => {
    const tool = byName.get(one);
    const description = sanitise(tool?.description ?? '', MAX_DESCRIPTION);
    return `\n- ${quoted(one)}${effectOf(tool)}${description === '' ? '' : `: ${description}`}`;
  });
  const names = fitting(lines, MAX_CHARS - 200 - schemas.length);
  const more = ordered.length - names.length;
  return `${start} It has${more > 0 ? ` ${ordered.length} tools, ${more} of which are not shown` : ''}:${names.join('')}${schemas}`;
}

const effectOf = (tool: KnownTool | undefined): string => {
  if (tool?.annotations?.destructiveHint === true) return ' (destructive)';
  return tool?.annotations?.readOnlyHint === true ? ' (read-only)' : '';
};

export const quoted = (name: string) => JSON.stringify(sanitise(name, 80));

interface Explanation {
  readonly why: string;
  /** Advice for the operator. */
  readonly action?: string;
}

const NAME_PROVIDER = 'switchboard catalogue add ID URL --provider NAME';

/** Explains the refusals of servers that receive no user token. */
const WITHOUT_TOKEN: Readonly<Record<AuthSpec['kind'], (id: string) => Explanation>> = {
  static_header: () => ({ why: 'The key that was entered may lack a permission.' }),
  own_oauth: id => ({
    why: 'It has a sign-in of its own.',
    action: `run npx switchboard connect ${id} to sign in again.`,
  }),
  user_oauth: () => ({
    why: 'Its catalogue entry names no identity provider.',
    action: `run ${NAME_PROVIDER}.`,
  }),
  none: () => ({
    why: 'According to its catalogue entry, it needs no sign-in.',
    action: 'correct the entry: switchboard catalogue add.',
  }),
  unknown: id => ({
    why: 'Its catalogue entry does not say what it requires.',
    action: `run npx switchboard connect ${id} if it has a sign-in or accepts a key, or ${NAME_PROVIDER} if it accepts tokens of an identity provider that is configured here.`,
  }),
};

/** Adds advice to a server's HTTP 401 or 403, based on the sign-in in its catalogue entry. Returns any other failure unchanged. */
export function withAccessAdvice(
  error: SwitchboardError,
  { id, auth }: Pick<ServerHead, 'id' | 'auth'>,
): SwitchboardError {
  const { kind, provider } = auth;
  const { code, detail } = error;
  if (code !== 'upstream_unauthorized' && code !== 'upstream_forbidden') return error;
  const isRefusal = code === 'upstream_forbidden';
  // Such a server is never called without the user's token.
  if (kind === 'user_oauth' && provider !== undefined)
    return restated(error, `${asSentence(detail)} ${isRefusal ? ACCOUNT_LACKS_RIGHT : TOKEN_NOT_TAKEN}`);
  const { why, action } = WITHOUT_TOKEN[kind](id);
  const missing = isRefusal ? `It may require a sign-in. ${why}` : why;
  const advice = action === undefined ? undefined : askOperator(action);
  return restated(error, `${asSentence(detail)} ${missing}`, { advice });
}

const TOKEN_NOT_TAKEN =
  "The server rejected the token of the user's account. If this persists, the user must reconnect the account.";
const ACCOUNT_LACKS_RIGHT =
  "The user's account may lack a permission. Ask the user to get the permission or to connect another account.";
