/** Shorter chunks are joined, because each that is kept takes about 100 bytes more. */
const MIN_KEPT_BYTES = 4 * 1024;
const BLOCK_BYTES = 64 * 1024;

/** The bytes of a large text in the chunks in which they arrived: joining them would copy all. */
export class Chunks {
  readonly #parts: Buffer[] = [];
  #length = 0;
  /** Where short chunks are joined: the bytes from `#from` to `#to` are no part yet. */
  #block = Buffer.alloc(0);
  #from = 0;
  #to = 0;

  get length(): number {
    return this.#length;
  }

  append(chunk: Buffer): void {
    this.#length += chunk.length;
    if (chunk.length < MIN_KEPT_BYTES) return this.#join(chunk);
    this.#endPart();
    this.#parts.push(chunk);
  }

  /** Returns the bytes from one offset to another, not copied. */
  slice(start: number, end: number): Buffer[] {
    this.#endPart();
    const slices: Buffer[] = [];
    let offset = 0;
    for (const part of this.#parts) {
      const [from, to] = [Math.max(0, start - offset), Math.min(part.length, end - offset)];
      if (from < to) slices.push(part.subarray(from, to));
      offset += part.length;
    }
    return slices;
  }

  #join(chunk: Buffer): void {
    if (this.#to + chunk.length > this.#block.length) {
      this.#endPart();
      this.#block = Buffer.allocUnsafe(BLOCK_BYTES);
      this.#from = this.#to = 0;
    }
    this.#block.set(chunk, this.#to);
    this.#to += chunk.length;
  }

  #endPart(): void {
    if (this.#from < this.#to) this.#parts.push(this.#block.subarray(this.#from, this.#to));
    this.#from = this.#to;
  }
}
