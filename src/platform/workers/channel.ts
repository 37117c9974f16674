interface Message {
  readonly channel: 'ask' | 'answer' | 'tell';
  readonly id?: number;
  readonly name?: string;
  readonly body?: unknown;
}

/** One end of the messages between a process and its child. Nothing that arrives can make it throw. */
export class Channel {
  readonly #send: (message: Message) => void;
  readonly #handlers = new Map<string, (body: unknown) => unknown>();
  readonly #waiting = new Map<number, (body: unknown) => void>();
  #last = 0;
  #isClosed = false;

  /** @param send must not throw; what cannot be sent is dropped */
  constructor(send: (message: object) => void) {
    this.#send = send;
  }

  /** Sets what is done with messages of this name. The result of `handle` is the answer to one that asks. */
  on(name: string, handle: (body: never) => unknown): this {
    this.#handlers.set(name, body => handle(body as never));
    return this;
  }

  /** True once the other end is gone. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Sends a message that has no answer. */
  tell(name: string, body?: unknown): void {
    if (!this.#isClosed) this.#send({ channel: 'tell', name, body });
  }

  /** Resolves to the answer; undefined if none came in time, if the handler failed, or once the other end is gone. */
  ask<Answer>(name: string, body?: unknown, withinMs?: number): Promise<Answer | undefined> {
    if (this.#isClosed) return Promise.resolve(undefined);
    const id = ++this.#last;
    return new Promise(resolve => {
      const timer = withinMs === undefined ? undefined : setTimeout(() => settle(undefined), withinMs);
      const settle = (answer: unknown) => {
        clearTimeout(timer);
        this.#waiting.delete(id);
        resolve(answer as Answer | undefined);
      };
      this.#waiting.set(id, settle);
      this.#send({ channel: 'ask', id, name, body });
    });
  }

  /** Takes what has arrived. Messages of others on the same connection are ignored. */
  receive(message: unknown): void {
    if (typeof message !== 'object' || message === null || !('channel' in message)) return;
    const { channel, id, name = '', body } = message as Message;
    if (channel === 'answer') {
      if (id !== undefined) this.#waiting.get(id)?.(body);
      return;
    }
    const answered = this.#run(name, body);
    if (channel === 'ask')
      void answered.then(answer => this.#send({ channel: 'answer', id: id ?? 0, body: answer }));
  }

  /** The other end is gone: nobody will answer any more. */
  close(): void {
    this.#isClosed = true;
    for (const settle of this.#waiting.values()) settle(undefined);
  }

  async #run(name: string, body: unknown): Promise<unknown> {
    try {
      return await this.#handlers.get(name)?.(body);
    } catch {
      return undefined;
    }
  }
}
