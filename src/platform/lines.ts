const NEWLINE = 0x0a;

/**
 * The lines of a stream of bytes, without their newlines. Returns what follows the last of these, '' where nothing does.
 * (`node:readline` also splits at U+2028 and U+2029, which JSON may have in it.)
 */
export async function* linesOf(stream: AsyncIterable<Buffer>): AsyncGenerator<string, string> {
  let begun: Buffer[] = [];
  for await (const chunk of stream) {
    let from = 0;
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, from)) {
      yield Buffer.concat([...begun, chunk.subarray(from, at)]).toString('utf8');
      begun = [];
      from = at + 1;
    }
    if (from < chunk.length) begun.push(chunk.subarray(from));
  }
  return Buffer.concat(begun).toString('utf8');
}
