/** Runs pieces of work one at a time, in the order in which they came. A piece that fails holds up none after it. */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve();
  #size = 0;

  /** How many pieces are under way or waiting. */
  get size(): number {
    return this.#size;
  }

  /** Starts the work, at once where nothing is under way, and resolves or rejects as it does. */
  run<T>(work: () => Promise<T>): Promise<T> {
    const started = this.#size++ === 0 ? begin(work) : this.#last.then(work);
    const ended = started.finally(() => this.#size--);
    this.#last = ended.catch(() => {});
    return ended;
  }

  /** Resolves when all that has come so far has ended, well or not. */
  async settled(): Promise<void> {
    await this.#last;
  }
}

/** Starts the work in this tick; what it throws at once is a rejection, too. */
const begin = async <T>(work: () => Promise<T>): Promise<T> => work();
