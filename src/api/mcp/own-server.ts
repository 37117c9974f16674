import type { CallToolResult, Tool } from '@modelcontextprotocol/server';
import { z } from 'zod';
import type { Caller } from '../../core/access/caller.ts';
import { RESERVED_SERVER_ID } from '../../core/catalogue/entry.ts';
import type { Core } from '../../core/core.ts';
import { isObject } from '../../platform/json-limits.ts';
import { readAsDeclared } from '../../core/proxy/arguments/check-arguments.ts';
import type { FoundLines, KeptPart } from '../../core/results/results.ts';
import { codePointsIn, quoted } from '../../platform/sanitize.ts';
import { SwitchboardError } from '../../errors.ts';
import {
  checkReadOrFind,
  findText,
  parseInput,
  toJsonSchema,
  withoutNulls,
  wrongType,
} from '../http/endpoint.ts';
import { count, headOf, MAX_SHOWN_BYTES } from './shown.ts';

const readResultInput = z
  .strictObject({
    handle: z
      .string(wrongType('must be a string: the handle from the end of the result that was cut'))
      .max(256)
      .describe('From the end of the result that was cut.'),
    offset: z
      .int(wrongType('must be a whole number: the character to read on from'))
      .min(0)
      .optional()
      .describe('The character to read on from.'),
    find: findText
      .optional()
      .describe(
        'In place of reading on: show the lines that hold exactly this text, in any case of letters.',
      ),
    from: z
      .int(wrongType('must be a whole number: the character to start looking from'))
      .min(0)
      .optional()
      .describe('With find: the character to start from.'),
  })
  .superRefine(checkReadOrFind);

const READ_RESULT: Tool = {
  name: 'read_result',
  description: 'Reads on in a result that was cut, or finds a text in it. Results are kept for 10 minutes.',
  inputSchema: toJsonSchema(readResultInput, 'input') as Tool['inputSchema'],
  annotations: { readOnlyHint: true },
};
/** The tools of Switchboard itself, in the form in which a server lists them. */
export const OWN_TOOLS: readonly Tool[] = [READ_RESULT];

/** The tool that a model reads on with: the one that hosts need not ask for, where it is offered. */
export type Reader = 'call_remote_tool' | 'read_remote_tool';

const callOf = (reader: Reader, args: Readonly<Record<string, unknown>>): string =>
  `${reader} ${JSON.stringify({ server_id: RESERVED_SERVER_ID, tool_name: 'read_result', arguments: args })}`;

/** Returns the call that reads on, in a form that a model can copy. */
export const readOnCall = (reader: Reader, { handle, offset }: { handle: string; offset: number }): string =>
  callOf(reader, { handle, offset });

/** Tells whether an id means Switchboard itself. Models also write it with a capital, like the name. */
export const isOwnServer = (serverId: string): boolean => serverId.toLowerCase() === RESERVED_SERVER_ID;

/**
 * Calls a tool of Switchboard itself.
 * @throws SwitchboardError `invalid_params` for wrong arguments or another tool; `result_not_found`.
 */
export async function callOwnTool(
  core: Core,
  caller: Caller,
  { tool_name, arguments: args }: { readonly tool_name: string; readonly arguments: unknown },
  reader: Reader,
): Promise<CallToolResult> {
  if (tool_name !== 'read_result')
    throw new SwitchboardError(
      'invalid_params',
      `The server ${RESERVED_SERVER_ID} has no tool ${quoted(tool_name)}. It has read_result, which reads on in a result that was cut: ${callOf(reader, { handle: 'res_…', offset: 0 })}`,
    );
  const {
    handle,
    offset = 0,
    find,
    from,
  } = parseInput(readResultInput, isObject(args) ? asDeclared(args) : args, 'The arguments');
  await core.identity.credentials.requireLive(caller);
  const asked = { handle, maxChars: MAX_SHOWN_BYTES };
  const texts =
    find === undefined
      ? partOf(reader, await core.results.read(caller, { ...asked, offset }))
      : linesOf(
          reader,
          await core.results.find(caller, { ...asked, find, ...(from === undefined ? {} : { from }) }),
          { find, from },
        );
  return { content: texts.map(text => ({ type: 'text' as const, text })) };
}

const asDeclared = (args: Readonly<Record<string, unknown>>): Record<string, unknown> => {
  const given = withoutNulls(args);
  return readAsDeclared(READ_RESULT.inputSchema, given) ?? given;
};

/** Returns as much of a part as there is room for, and how to read on. */
function partOf(reader: Reader, { handle, offset, text, totalChars }: KeptPart): string[] {
  const shown = headOf(text, MAX_SHOWN_BYTES);
  const end = offset + codePointsIn(shown);
  const where = `characters ${count(offset)} to ${count(end)} of ${count(totalChars)}`;
  const more =
    end === totalChars ? 'this is the end' : `to read on: ${readOnCall(reader, { handle, offset: end })}`;
  return [shown, `[${where}; ${more}]`];
}

/** Returns as many of the matches as there is room for, and how to find more. */
function linesOf(
  reader: Reader,
  { handle, matches, nextFrom, totalChars }: FoundLines,
  { find, from }: { find: string; from: number | undefined },
): string[] {
  if (matches.length === 0) {
    const where = from === undefined ? '' : `from character ${count(from)} on, `;
    const advice = /\W/.test(find) ? ' find takes the exact text, not a pattern: try one word of it.' : '';
    return [`[not found: ${quoted(find)}, ${where}in ${count(totalChars)} characters.${advice}]`];
  }
  const shown: string[] = [];
  let left = MAX_SHOWN_BYTES;
  let next = nextFrom;
  for (const [at, { offset, text }] of matches.entries()) {
    const head = headOf(text, left - 100);
    const isCut = head !== text;
    if (isCut && at > 0) {
      next = offset;
      break;
    }
    const piece = `[at offset ${offset}]\n${head}\n`;
    shown.push(piece);
    left -= Buffer.byteLength(piece);
    if (!isCut) continue;
    // A hit may begin just before the cut.
    next = offset + Math.max(1, codePointsIn(head) - codePointsIn(find) + 1);
    break;
  }
  const more =
    next === undefined ? 'That is all.' : `To find more: ${callOf(reader, { handle, find, from: next })}.`;
  const { offset = 0 } = matches[0] ?? {};
  const around = `To read around a place, give its offset: ${readOnCall(reader, { handle, offset })}`;
  return [shown.join('\n'), `[${more} ${around}]`];
}
