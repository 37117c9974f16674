import { z } from 'zod';
import {
  DEFAULT_READ_CHARS,
  MAX_READ_CHARS,
  type FoundLines,
  type KeptPart,
} from '../../core/results/results.ts';
import { endpoint, KIB, checkReadOrFind, findText, wrongType } from '../http/endpoint.ts';

const OFFSET = 'must be a whole number, 0 or more';
const CHARS = `must be a whole number from 1 to ${MAX_READ_CHARS}`;

const wholeNumber = (mustBe: string) =>
  z
    .string(wrongType(mustBe))
    .regex(/^\d{1,9}$/, mustBe)
    .transform(Number);

const query = z
  .strictObject({
    offset: wholeNumber(OFFSET).optional().describe('The character to read on from. Default 0.'),
    max_chars: wholeNumber(CHARS)
      .refine(chars => chars >= 1 && chars <= MAX_READ_CHARS, CHARS)
      .default(DEFAULT_READ_CHARS)
      .describe(`The most characters to return, 1 to ${MAX_READ_CHARS}. With find, all matches together.`),
    find: findText.optional().describe('Plain text to find instead of reading on. Case does not matter.'),
    from: wholeNumber(OFFSET)
      .optional()
      .describe('With find: leaves out matches before this offset. Default 0.'),
  })
  .superRefine(checkReadOrFind);

const ofEach = {
  total_characters: z.int().describe('The length of the whole result.'),
  expires_at: z.iso.datetime().describe('When the kept result is deleted.'),
};
const part = z.object({
  handle: z.string(),
  offset: z.int(),
  text: z.string(),
  next_offset: z.int().optional().describe('The offset to read on from. Absent: this is the end.'),
  ...ofEach,
});
const found = z.object({
  handle: z.string(),
  matches: z
    .array(z.object({ offset: z.int().describe('The offset of this text.'), text: z.string() }))
    .describe(
      'The matching lines, each with the line before and after. Of a long line, the text around the match.',
    ),
  more_matches: z.boolean().describe('true: there are more matches than max_chars had room for.'),
  next_from: z.int().optional().describe('The value of from that finds them.'),
  ...ofEach,
});

const lengthAndEnd = ({ totalChars, expiresAtMs }: KeptPart | FoundLines) => ({
  total_characters: totalChars,
  expires_at: new Date(expiresAtMs).toISOString(),
});

export const readResult = endpoint({
  method: 'get',
  path: '/v1/results/:handle',
  operationId: 'readResult',
  tag: 'Proxy',
  summary: 'Read on in a kept result',
  description:
    'Reads a kept result in parts, or finds text in it. A tool result that is too long for an agent is cut, and kept whole for 10 minutes under a ' +
    'handle (res_…), for the key and the user that made the call. Offsets and lengths count Unicode code points.',
  scope: 'proxy',
  rateLimit: 'proxy',
  user: 'checked',
  cache: 'no-store',
  timeoutHeader: true,
  maxBodyBytes: KIB,
  errors: ['invalid_request', 'identity_token_invalid', 'result_not_found', 'rate_limited', 'unavailable'],
  querySchema: query,
  responseSchema: z.union([part, found]),
  handle: async (core, caller, { params, query: { offset = 0, max_chars: maxChars, find, from = 0 } }) => {
    const handle = params['handle'] ?? '';
    if (find === undefined) {
      const one = await core.results.read(caller, { handle, offset, maxChars });
      const { text, nextOffset } = one;
      return {
        handle,
        offset,
        text,
        ...(nextOffset === undefined ? {} : { next_offset: nextOffset }),
        ...lengthAndEnd(one),
      };
    }
    const one = await core.results.find(caller, { handle, find, from, maxChars });
    const { matches, nextFrom } = one;
    return {
      handle,
      matches,
      more_matches: nextFrom !== undefined,
      ...(nextFrom === undefined ? {} : { next_from: nextFrom }),
      ...lengthAndEnd(one),
    };
  },
});
