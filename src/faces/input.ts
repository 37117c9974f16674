import { z } from 'zod';
import { isObject } from '../core/proxy/json.ts';
import { SwitchboardError } from '../errors.ts';

const lengthOf = (text: string) => Array.from(text).length;

/** A search's query; lengths count Unicode code points. */
export const queryText = z
  .string('must be a string of 1 to 1000 characters')
  .refine(text => text.trim() !== '', 'must not be empty: say in plain words what you want to do')
  .refine(text => lengthOf(text) <= 1000, {
    error: issue => `must have at most 1000 characters, not ${lengthOf(String(issue.input))}`,
  })
  .meta({
    minLength: 1,
    maxLength: 1000,
    description: 'What you want to do, in plain words.',
    examples: ['create an issue in our bug tracker'],
  });

export const searchLimit = z
  .int('must be a whole number from 1 to 50')
  .min(1, 'must be at least 1')
  .max(50, 'must be at most 50')
  .default(10);

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
  .regex(/^[\x21-\x7e]{1,255}$/, 'Idempotency-Key: must be 1 to 255 visible ASCII characters')
  .optional();

/** @throws SwitchboardError 400 `invalid_request` that names every field at fault. */
export function parseInput<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new SwitchboardError('invalid_request', parsed.error.issues.map(describeIssue).join('; '));
}

function describeIssue(issue: z.core.$ZodIssue): string {
  const field = issue.path.join('.');
  if (issue.code === 'unrecognized_keys')
    return `Unknown field ${issue.keys.map(key => JSON.stringify(key)).join(', ')}`;
  return field === '' ? issue.message : `${field}: ${issue.message}`;
}
