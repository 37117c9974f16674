import { z } from 'zod';
import { HEALTH_STATES } from '../../core/catalogue/health.ts';
import { isObject } from '../../platform/json-limits.ts';
import { MAX_FIND_CHARS } from '../../core/results/results.ts';
import { codePointsIn } from '../../platform/sanitize.ts';
import { SwitchboardError } from '../../errors.ts';
import { inWords } from '../../platform/zod-issues.ts';

/** Words the error of a value that is missing or of another type, where more is to be said than its type. */
export const wrongType = (mustBe: string) => ({
  error({ code, input }: { readonly code: string; readonly input: unknown }) {
    if (code !== 'invalid_type') return undefined;
    return input === undefined ? `is missing; it ${mustBe}` : mustBe;
  },
});

/** The query of a search. Its length counts Unicode code points. */
export const queryText = z
  .string(wrongType('must be a string of 1 to 1000 characters'))
  .refine(text => text.trim() !== '', 'must not be empty: say in plain words what you want to do')
  .refine(text => codePointsIn(text) <= 1000, {
    error: issue => `must have at most 1000 characters, not ${codePointsIn(String(issue.input))}`,
  })
  .meta({
    minLength: 1,
    maxLength: 1000,
    description: 'What you want to do, in plain words. Its length counts Unicode code points.',
    examples: ['create an issue in our bug tracker'],
  });

export const searchLimit = z
  .int(wrongType('must be a whole number from 1 to 50'))
  .min(1)
  .max(50)
  .default(10)
  .describe('Servers at most.');

const FIND = `must be a string of 1 to ${MAX_FIND_CHARS} characters: the text to look for`;

/** The text to find in a kept result. Its length counts Unicode code points. */
export const findText = z
  .string(wrongType(FIND))
  .refine(text => text !== '' && codePointsIn(text) <= MAX_FIND_CHARS, FIND)
  .meta({ minLength: 1, maxLength: MAX_FIND_CHARS });

/** Refuses fields that contradict each other: a kept result is read on from `offset`, or searched for `find` from `from` on. */
export function checkReadOrFind(
  { offset, find, from }: { readonly offset?: unknown; readonly find?: unknown; readonly from?: unknown },
  context: z.RefinementCtx,
): void {
  const refuse = (field: string, message: string) => {
    context.addIssue({ code: 'custom', path: [field], message });
  };
  if (find !== undefined && offset !== undefined)
    refuse('offset', 'cannot be combined with find: use from to say where to search');
  if (find === undefined && from !== undefined)
    refuse('from', 'needs find: use offset to say where to read on');
}

/** Takes an object as it is: zod's own record leaves out a member named __proto__. */
export const jsonObject = z
  .unknown()
  .refine(isObject, 'must be a JSON object')
  .meta({ type: 'object', additionalProperties: {} });

export const serverId = z
  .string(wrongType("must be a string: a server's id as POST /v1/search returns it"))
  .min(1)
  .max(256)
  .describe("The server's id, as search returns it.");

/** Warnings on a tool's definition: see docs/tools.md. */
export const toolWarnings = z
  .array(z.string())
  .optional()
  .describe(
    'Warnings to read before the tool is called: definition_changed (within the last 7 days), suspicious:<rule id>. Absent: none.',
  );

export const healthStatus = z
  .enum(HEALTH_STATES)
  .describe(
    'ok: it speaks MCP. needs_sign_in: it answers, and requires a sign-in or a key. not_mcp: it answers, but not in MCP. unreachable: no answer, or HTTP 5xx.',
  );

/** The health of a server, as its last check found it. */
export const shownHealth = z.object({
  status: healthStatus,
  checked_at: z.iso.datetime().describe('When the server was last visited.'),
  latency_ms: z
    .int()
    .min(0)
    .optional()
    .describe(
      'Milliseconds from the first request of the visit to its list of tools. Absent: there was no answer.',
    ),
});

export const queryLogId = z
  .string()
  .max(64)
  .optional()
  .describe(
    'The query_log_id of the search that led here: what becomes of the call is noted there. One that does not fit is ignored.',
  );

/** Drops members that are null: some models send null for what they leave out. */
export const withoutNulls = (given: Readonly<Record<string, unknown>>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null));

/** Returns the JSON Schema of what a schema takes, or of what it gives. */
export function toJsonSchema(schema: z.ZodType, io: 'input' | 'output'): Record<string, unknown> {
  const { $schema: _dialect, ...json } = z.toJSONSchema(schema, { io });
  return json;
}

/** A key of the client's own choice under which a lost answer can be had again. */
export const idempotencyKey = z
  .string()
  .regex(/^[\x21-\x7e]{1,255}$/, 'must be 1 to 255 visible ASCII characters')
  .optional();

/**
 * Checks a value against a schema.
 * @param whole names the value in an error
 * @throws SwitchboardError 400 `invalid_request` that names the fields at fault.
 */
export function parseInput<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  whole = 'The body',
): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new SwitchboardError('invalid_request', inWords(parsed.error.issues, whole));
}
