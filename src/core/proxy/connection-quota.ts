/** How many of something each key holds open at a time, and all keys together. */
export class OpenCount {
  readonly #perKey = new Map<string, number>();
  readonly #maxPerKey: number;
  readonly #max: number;
  #total = 0;

  constructor(maxPerKey: number, max: number) {
    this.#maxPerKey = maxPerKey;
    this.#max = max;
  }

  /** Counts one more; dispose of what is returned at its end. Otherwise says which bound is reached. */
  enter(keyId: string): Disposable | 'key' | 'all' {
    const held = this.#perKey.get(keyId) ?? 0;
    if (held >= this.#maxPerKey) return 'key';
    if (this.#total >= this.#max) return 'all';
    this.#perKey.set(keyId, held + 1);
    this.#total++;
    return { [Symbol.dispose]: () => this.#leave(keyId) };
  }

  #leave(keyId: string): void {
    const left = (this.#perKey.get(keyId) ?? 1) - 1;
    if (left === 0) this.#perKey.delete(keyId);
    else this.#perKey.set(keyId, left);
    this.#total--;
  }
}
