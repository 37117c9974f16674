import * as fc from 'fast-check';
import { faults } from './faults.ts';
import { keyOf } from './judge.ts';
import { INTERNAL_ERROR, MAX_ERROR_CHARS, mcpRequests, messagesIn, type Tool } from './mcp.ts';
import type { Keys } from './odd-requests.ts';
import { altered, type FuzzAnswer, type FuzzRequest } from './send.ts';
import type { Known } from './values.ts';

/** One that answers, most of the time. */
const SERVERS = ['echo', 'echo', 'echo', 'dead', 'gone', 'missing', '__proto__', '%00', 'x'.repeat(5_000)];
/** Answered with a stream that stays open. */
const WITHOUT_END = ['subscriptions/listen', '"wait"'];

/** What is sent to `/mcp`, to `/mcp/{server_id}`, in batches too. @param tools of the server */
export function passThroughRequests(
  tools: readonly Tool[],
  keys: Keys,
  known: Known,
): fc.Arbitrary<FuzzRequest> {
  const single = mcpRequests(tools, keys, known).filter(
    ({ body = '' }) => !WITHOUT_END.some(part => body.includes(part)),
  );
  const batch = single
    .filter(({ family }) => family === 'valid')
    .map(one => altered(one, { family: 'near', body: `[${String(one.body)},${String(one.body)}]` }));
  return fc
    .tuple(
      fc.oneof({ weight: 9, arbitrary: single }, { weight: 1, arbitrary: batch }),
      fc.constantFrom(...SERVERS),
    )
    .map(([one, id]) => altered(one, { target: `/mcp/${id}` }));
}

/** The server's own answers are passed on, whatever they say: of them only the form is looked at. */
export function passThroughProblems({ right }: Keys) {
  return (request: FuzzRequest, { status, headers, text }: FuzzAnswer): string[] => {
    const type = (headers['content-type'] ?? '').replace(/;.*/, '');
    const isHtml = /html/i.test(type) || /^\s*<(?!script>alert)/.test(text);
    const found = faults(
      // The SDK's servers answer so themselves, to arguments that nest too deep.
      [status === 500 && !isTheirs(text), '500'],
      [isHtml, 'HTML'],
      [status < 300 && keyOf(request) !== right, 'success without the key'],
    );
    if (request.method === 'HEAD' || text === '') return found;
    if (type !== 'application/json' && type !== 'text/event-stream')
      return [...found, `content type ${type}`];
    return [...found, ...messagesIn(type, text).flatMap(ofMessage)];
  };
}

/** A JSON-RPC error that does not say that it is ours: all of ours do. */
const isTheirs = (text: string) => /"error":\{/.test(text) && !text.includes('"origin":"switchboard"');

function ofMessage(message: any): string[] {
  if (message?.jsonrpc !== '2.0') return ['no JSON-RPC message'];
  const { error } = message;
  if (error?.data?.origin !== 'switchboard') return [];
  return faults(
    [!Number.isInteger(error.code) || error.code === INTERNAL_ERROR, `error code ${error.code}`],
    [JSON.stringify(error).length > MAX_ERROR_CHARS, `an error of over ${MAX_ERROR_CHARS} characters`],
  );
}
