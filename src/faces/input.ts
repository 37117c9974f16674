import { z } from 'zod';
import { isObject } from '../core/proxy/json.ts';
import { SwitchboardError } from '../errors.ts';
import { inWords } from '../infra/zod-issues.ts';

/** Of a value that is missing or of another type, where more is to be said than its type. Its other checks speak for themselves. */
export const wrongType = (mustBe: string) => ({
  error({ code, input }: { readonly code: string; readonly input: unknown }) {
    if (code !== 'invalid_type') return undefined;
    return input === undefined ? `is missing; it ${mustBe}` : mustBe;
  },
});

const lengthOf = (text: string) => Array.from(text).length;

/** A search's query; lengths count Unicode code points. */
export const queryText = z
  .string(wrongType('must be a string of 1 to 1000 characters'))
  .refine(text => text.trim() !== '', 'must not be empty: say in plain words what you want to do')
  .refine(text => lengthOf(text) <= 1000, {
    error: issue => `must have at most 1000 characters, not ${lengthOf(String(issue.input))}`,
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

/** Taken as it is: zod's own record leaves out a member named __proto__. */
export const jsonObject = z
  .unknown()
  .refine(isObject, 'must be a JSON object')
  .meta({ type: 'object', additionalProperties: {} });

export const queryLogId = z
  .string()
  .max(64)
  .optional()
  .describe(
    'The query_log_id of the search that led here: what becomes of the call is noted there. One that does not fit is ignored.',
  );

/** A key of the client's own choice under which a lost answer can be had again. */
export const idempotencyKey = z
  .string()
  .regex(/^[\x21-\x7e]{1,255}$/, 'must be 1 to 255 visible ASCII characters')
  .optional();

/**
 * @param whole what the value is, in an error
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
