/**
 * Joins concurrent calls for one key: while the first is under way, later ones get its promise.
 * Nothing is kept once it settles, whether it succeeded or failed.
 */
export class SingleFlight<T> {
  readonly #inFlight = new Map<string, Promise<T>>();

  run(key: string, start: () => Promise<T>): Promise<T> {
    const running = this.#inFlight.get(key);
    if (running) return running;
    const promise = start().finally(() => this.#inFlight.delete(key));
    this.#inFlight.set(key, promise);
    return promise;
  }

  /** Returns the call under way for a key, if there is one. */
  running(key: string): Promise<T> | undefined {
    return this.#inFlight.get(key);
  }
}
