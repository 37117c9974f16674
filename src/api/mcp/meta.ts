import { isObject, jsonSizeOf } from '../../platform/json-limits.ts';

/** The part of a result about a sign-in that its call needs. */
export interface SignIn {
  readonly provider: string;
  /** `not_connected`, `needs_reauth` or `missing_scopes`. */
  readonly reason: string;
  readonly missing_scopes: readonly string[];
  readonly auth_url: string;
  readonly expires_at: string;
}

interface Facts {
  readonly serverId: string;
  /** Absent: no tool was called. */
  readonly toolName?: string | undefined;
  readonly signIn?: SignIn | undefined;
  /** Where the rest of a result can be read that was too long to show. */
  readonly cut?: { readonly handle: string; readonly total_characters: number } | undefined;
  /** The server's own `_meta`. */
  readonly upstream?: unknown;
}

const PREFIX = 'switchboard/';
/** The key of a fact of Switchboard's in `_meta`. */
export const metaKey = (fact: string): string => `${PREFIX}${fact}`;
/** Labels of prefixes that the protocol reserves: such keys speak of the hop between two peers (MCP, "General fields: _meta"). */
const RESERVED_LABELS: ReadonlySet<string> = new Set(['modelcontextprotocol', 'mcp']);
const MAX_KEYS = 100;
const MAX_KEY_CHARS = 256;
const MAX_META_CHARS = 20_000;

/**
 * The `_meta` of a result of `call_remote_tool`: the server's own, as far as it is short and not reserved, and Switchboard's facts
 * under `switchboard/`. No client shows it to a model.
 */
export function metaOf({ serverId, toolName, signIn, cut, upstream }: Facts): Record<string, unknown> {
  return {
    ...passedOn(upstream),
    [metaKey('server_id')]: serverId,
    ...(toolName === undefined ? {} : { [metaKey('tool_name')]: toolName }),
    ...(signIn === undefined ? {} : { [metaKey('sign_in')]: signIn }),
    ...(cut === undefined ? {} : { [metaKey('cut')]: cut }),
  };
}

function passedOn(meta: unknown): Record<string, unknown> {
  if (!isObject(meta)) return {};
  const entries: [string, unknown][] = [];
  let keys = 0;
  for (const key in meta) {
    if (++keys > MAX_KEYS) break;
    if (isPassedOn(key)) entries.push([key, meta[key]]);
  }
  const passed = Object.fromEntries(entries);
  return jsonSizeOf(passed, 1, MAX_META_CHARS) > MAX_META_CHARS ? {} : passed;
}

function isPassedOn(key: string): boolean {
  if (key.length > MAX_KEY_CHARS) return false;
  const prefix = key.slice(0, key.indexOf('/') + 1).toLowerCase();
  return (
    prefix !== PREFIX &&
    !prefix
      .slice(0, -1)
      .split('.')
      .some(label => RESERVED_LABELS.has(label))
  );
}
