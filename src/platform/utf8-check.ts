import { isUtf8 } from 'node:buffer';

/** Checks that the characters of a text that arrives in chunks are UTF-8, wherever it is split. */
export class Utf8Check {
  /** The beginning of a character that the next chunk ends. */
  #head: Uint8Array = new Uint8Array();

  /** Returns whether the characters that end in this chunk are valid. */
  push(chunk: Uint8Array): boolean {
    let start = 0;
    if (this.#head.length > 0) {
      start = lengthOf(this.#head[0]) - this.#head.length;
      const character = Buffer.concat([this.#head, chunk.subarray(0, start)]);
      this.#head = character;
      if (chunk.length < start) return true;
      if (!isUtf8(character)) return false;
    }
    const end = chunk.length - headLengthOf(chunk.subarray(start));
    // A copy, because the caller may use the chunk again.
    this.#head = new Uint8Array(chunk.subarray(end));
    return isUtf8(chunk.subarray(start, end));
  }
}

/** Returns the length of a character by its first byte. */
const lengthOf = (lead = 0): number => {
  if (lead >= 0xf0) return 4;
  if (lead >= 0xe0) return 3;
  return lead >= 0xc0 ? 2 : 1;
};

/** Returns how many of the last bytes begin a character that is not complete. */
function headLengthOf(bytes: Uint8Array): number {
  const most = Math.min(3, bytes.length);
  for (let length = 1; length <= most; length++) {
    const byte = bytes[bytes.length - length] ?? 0;
    const isContinuation = (byte & 0xc0) === 0x80;
    if (!isContinuation) return lengthOf(byte) > length ? length : 0;
  }
  return 0;
}
