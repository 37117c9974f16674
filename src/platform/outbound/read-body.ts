/** Passes a stream's chunks on, up to `maxBytes` in all. @throws what `tooLarge` returns, at the first byte beyond */
export async function* boundedChunks<Chunk extends Uint8Array>(
  stream: AsyncIterable<Chunk>,
  maxBytes: number,
  tooLarge: () => Error,
): AsyncGenerator<Chunk> {
  let bytes = 0;
  for await (const chunk of stream) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw tooLarge();
    yield chunk;
  }
}

/**
 * Reads a stream to its end. Reading stops, and the stream is destroyed, at the first byte beyond `maxBytes`.
 * @throws what `tooLarge` returns; what the stream fails with
 */
export async function readBody(
  stream: AsyncIterable<Uint8Array>,
  maxBytes: number,
  tooLarge: () => Error,
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of boundedChunks(stream, maxBytes, tooLarge)) chunks.push(chunk);
  return Buffer.concat(chunks);
}
