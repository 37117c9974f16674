import type { CallToolResult, Tool } from '@modelcontextprotocol/server';
import { z } from 'zod';
import type { Caller } from '../../core/access/caller.ts';
import { RESERVED_SERVER_ID } from '../../core/catalogue/entry.ts';
import type { Core } from '../../core/core.ts';
import { isObject } from '../../platform/json/limits.ts';
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
      .string(wrongType('must be a string: the handle from the end of a truncated result'))
      .max(256)
      .describe('The handle from the end of the truncated result.'),
    offset: z
      .int(wrongType('must be a whole number: the character to continue from'))
      .min(0)
      .optional()
      .describe('The character to continue from.'),
    find: findText
      .optional()
      .describe('Shows the lines that contain this exact text instead of continuing. Case does not matter.'),
    from: z
      .int(wrongType('must be a whole number: the character to start searching from'))
      .min(0)
      .optional()
      .describe('With find: the character to start searching from.'),
  })
  .superRefine(checkReadOrFind);

const READ_RESULT: Tool = {
  name: 'read_result',
  description:
    'Returns the next part of a truncated result, or finds text in it. Results are stored for 10 minutes.',
  inputSchema: toJsonSchema(readResultInput, 'input') as Tool['inputSchema'],
  annotations: { readOnlyHint: true },
};
/** Switchboard's own tools, in the form in which a server lists them. */
export const OWN_TOOLS: readonly Tool[] = [READ_RESULT];

/** Returns the tool for reading on: the one that needs no approval, if it is offered. */
export type Reader = 'call_remote_tool' | 'read_remote_tool';

const callOf = (reader: Reader, args: Readonly<Record<string, unknown>>): string =>
  `${reader} ${JSON.stringify({ server_id: RESERVED_SERVER_ID, tool_name: 'read_result', arguments: args })}`;

/** Returns the call that continues a result, in a form that a model can copy. */
export const readOnCall = (reader: Reader, { handle, offset }: { handle: string; offset: number }): string =>
  callOf(reader, { handle, offset });

/** Returns whether an id means Switchboard itself. Models also capitalize it, like the name. */
export const isOwnServer = (serverId: string): boolean => serverId.toLowerCase() === RESERVED_SERVER_ID;

/**
 * Calls one of Switchboard's own tools.
 * @throws SwitchboardError `invalid_params` for wrong arguments or an unknown tool; `result_not_found`
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
      `The server ${RESERVED_SERVER_ID} has no tool ${quoted(tool_name)}. Its only tool is read_result, which returns the next part of a truncated result: ${callOf(reader, { handle: 'res_…', offset: 0 })}`,
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

/** Returns as much of a part as fits, and how to continue. */
function partOf(reader: Reader, { handle, offset, text, totalChars }: KeptPart): string[] {
  const shown = headOf(text, MAX_SHOWN_BYTES);
  const end = offset + codePointsIn(shown);
  const where = `characters ${count(offset)} to ${count(end)} of ${count(totalChars)}`;
  const more =
    end === totalChars ? 'this is the end' : `to continue: ${readOnCall(reader, { handle, offset: end })}`;
  return [shown, `[${where}; ${more}]`];
}

/** Returns as many matches as fit, and how to find more. */
function linesOf(
  reader: Reader,
  { handle, matches, nextFrom, totalChars }: FoundLines,
  { find, from }: { find: string; from: number | undefined },
): string[] {
  if (matches.length === 0) {
    const where = from === undefined ? '' : `starting at character ${count(from)}, `;
    const advice = /\W/.test(find) ? ' find matches exact text, not patterns. Try a single word.' : '';
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
    // A match may start just before the cut.
    next = offset + Math.max(1, codePointsIn(head) - codePointsIn(find) + 1);
    break;
  }
  const more =
    next === undefined
      ? 'That is all.'
      : `For more matches: ${callOf(reader, { handle, find, from: next })}.`;
  const { offset = 0 } = matches[0] ?? {};
  const around = `To read from a match, pass its offset: ${readOnCall(reader, { handle, offset })}`;
  return [shown.join('\n'), `[${more} ${around}]`];
}
