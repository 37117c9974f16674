const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const BYTE_ORDER_MARK = Buffer.from('\uFEFF');
const [OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST] = [0x7b, 0x7d, 0x5b, 0x5d];

/**
 * The top-level member `method` of a JSON-RPC message, found without parsing the rest: clients write it among the first. Undefined
 * for an answer, for a batch, and for what is no JSON. Of several the first counts, which only its sender can have wanted.
 */
export function methodOf(body: Buffer): string | undefined {
  let depth = 0;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (byte === OPEN_OBJECT || byte === OPEN_LIST) depth++;
    else if (byte === CLOSE_OBJECT || byte === CLOSE_LIST) depth--;
    if (byte !== QUOTE) continue;
    const end = endOfString(body, at);
    if (end === -1) return undefined;
    const isKey = depth === 1 && body.toString('latin1', at, end + 1) === '"method"';
    at = end;
    if (!isKey) continue;
    const colon = skipSpace(body, end + 1);
    if (body[colon] === COLON) return stringAt(body, skipSpace(body, colon + 1));
  }
  return undefined;
}

/** How many messages came as one: a batch (revision 2025-03-26) holds several. At least 1, for what is no message, too. */
export function messagesIn(body: Buffer): number {
  // A byte order mark is no JSON, but many readers leave it out.
  const start = body.subarray(0, 3).equals(BYTE_ORDER_MARK) ? 3 : 0;
  if (body[skipSpace(body, start)] !== OPEN_LIST) return 1;
  let depth = 0;
  let messages = 0;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (byte === QUOTE) {
      const end = endOfString(body, at);
      if (end === -1) break;
      at = end;
    } else if (byte === OPEN_OBJECT || byte === OPEN_LIST) {
      if (++depth === 2) messages++;
    } else if (byte === CLOSE_OBJECT || byte === CLOSE_LIST) depth--;
  }
  return Math.max(1, messages);
}

/** Where the closing quote of the string stands that begins here; -1 when there is none. */
function endOfString(body: Buffer, start: number): number {
  let end = body.indexOf(QUOTE, start + 1);
  while (end !== -1 && isEscaped(body, end)) end = body.indexOf(QUOTE, end + 1);
  return end;
}

function isEscaped(body: Buffer, quote: number): boolean {
  let first = quote;
  while (body[first - 1] === BACKSLASH) first--;
  return (quote - first) % 2 === 1;
}

function skipSpace(body: Buffer, from: number): number {
  let at = from;
  while (body[at] === 0x20 || body[at] === 0x0a || body[at] === 0x0d || body[at] === 0x09) at++;
  return at;
}

function stringAt(body: Buffer, start: number): string | undefined {
  const end = body[start] === QUOTE ? endOfString(body, start) : -1;
  return end === -1 ? undefined : body.toString('utf8', start + 1, end);
}
