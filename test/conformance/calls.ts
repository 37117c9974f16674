/** A running Switchboard, and the key that calls are made with. */
export interface Target {
  readonly url: string;
  readonly key: string;
  /** Its control socket. */
  readonly socket: string;
}

export interface Reply {
  readonly status: number;
  readonly json: any;
}

/** Calls of one server over REST, each told on stderr for whoever reads why a scenario failed. */
export class Calls {
  readonly #target: Target;
  readonly #serverId: string;

  constructor(target: Target, serverId: string) {
    this.#target = target;
    this.#serverId = serverId;
  }

  /** `POST /v1/mcp/{path}` */
  post(path: string, body: object): Promise<Reply> {
    return this.#send(`/v1/mcp/${path}`, JSON.stringify({ server_id: this.#serverId, ...body }));
  }

  /** Any JSON-RPC request. */
  request(method: string, params?: object): Promise<Reply> {
    return this.post('call', { method, params });
  }

  /** The state of a sign-in. */
  poll(sessionId: string): Promise<Reply> {
    return this.#send(`/v1/identity/sessions/${sessionId}`);
  }

  async #send(path: string, body?: string): Promise<Reply> {
    const response = await fetch(this.#target.url + path, {
      ...(body === undefined ? {} : { method: 'POST', body }),
      headers: { 'content-type': 'application/json', 'x-api-key': this.#target.key },
      signal: AbortSignal.timeout(20_000),
    });
    const json: unknown = await response.json();
    console.error(path, body?.slice(0, 200), response.status, JSON.stringify(json).slice(0, 500));
    return { status: response.status, json };
  }
}
