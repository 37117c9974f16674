/** Whether a request is stopped before the server has processed it, or when its answer is ready. */
export type When = 'before' | 'after';

export interface Hold {
  /** Resolves when the first request has come to this point. */
  readonly arrived: Promise<void>;
  /** Lets everything that waits go on, and ends the hold. */
  release(): void;
}

/** Where requests to a server's endpoints wait until a test lets them go on. */
export class Holds {
  readonly #held = new Map<string, { arrive(): void; released: Promise<void> }>();

  /** Stops every request at this point, until released. */
  hold(endpoint: string, when: When): Hold {
    const place = `${endpoint} ${when}`;
    const { promise: arrived, resolve: arrive } = Promise.withResolvers<void>();
    const { promise: released, resolve } = Promise.withResolvers<void>();
    const held = { arrive, released };
    this.#held.set(place, held);
    const release = () => {
      if (this.#held.get(place) === held) this.#held.delete(place);
      resolve();
    };
    return { arrived, release };
  }

  /** Waits as long as a hold of this point says. */
  async pass(endpoint: string, when: When): Promise<void> {
    const held = this.#held.get(`${endpoint} ${when}`);
    held?.arrive();
    await held?.released;
  }
}
