const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;

/**
 * The top-level member `method` of a JSON-RPC message, found without parsing the rest: clients write it among the first. Undefined
 * for an answer, for a batch, and for what is no JSON. Of several the first counts, which only its sender can have wanted.
 */
export function methodOf(body: Buffer): string | undefined {
  let depth = 0;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (byte === 0x7b || byte === 0x5b) depth++;
    else if (byte === 0x7d || byte === 0x5d) depth--;
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
