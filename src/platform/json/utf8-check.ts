import { isUtf8 } from 'node:buffer';

const NO_BYTES: Uint8Array = new Uint8Array();

/** Checks that the characters of a text that arrives in chunks are UTF-8, wherever it is split. */
export class Utf8Check {
  /** The beginning of a character that the next chunk ends. */
  #head = NO_BYTES;

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
    const left = headLengthOf(chunk, start);
    const end = chunk.length - left;
    // A copy, because the caller may use the chunk again.
    this.#head = left === 0 ? NO_BYTES : new Uint8Array(chunk.subarray(end));
    return isUtf8(start === 0 && left === 0 ? chunk : chunk.subarray(start, end));
  }
}

/** Returns the length of a character by its first byte. */
const lengthOf = (lead = 0): number => {
  if (lead >= 0xf0) return 4;
  if (lead >= 0xe0) return 3;
  return lead >= 0xc0 ? 2 : 1;
};

/** Returns how many of the last bytes from `start` on begin a character that is not complete. */
function headLengthOf(bytes: Uint8Array, start: number): number {
  const most = Math.min(3, bytes.length - start);
  for (let length = 1; length <= most; length++) {
    const byte = bytes[bytes.length - length] ?? 0;
    const isContinuation = (byte & 0xc0) === 0x80;
    if (!isContinuation) return lengthOf(byte) > length ? length : 0;
  }
  return 0;
}
