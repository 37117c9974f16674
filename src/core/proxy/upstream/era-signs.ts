import type { RpcAnswer } from './envelope.ts';
import { isObject } from './json.ts';
import { isGrandfathered } from './lost-session.ts';

/** A refusal no server of revision 2026-07-28 gives: no JSON-RPC body, or one in the manner of "no session". */
export const looksLegacy = (status: number, code: number | undefined) =>
  [400, 404, 405, 406, 415].includes(status) &&
  (code === undefined || isGrandfathered(code) || code === -32_600);

/** Every result of revision 2026-07-28 says what it is. */
export const hasResultType = (answer: RpcAnswer | undefined): boolean =>
  answer !== undefined &&
  'result' in answer &&
  isObject(answer.result) &&
  typeof answer.result['resultType'] === 'string';
