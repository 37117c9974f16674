import { SwitchboardError } from '../../errors.ts';
import { CallerAbortError } from '../../platform/race-abort.ts';
import type { Caller } from '../access/caller.ts';
import type { Catalogue } from '../catalogue/catalogue.ts';
import type { Server } from '../catalogue/entry.ts';
import { fromThrown } from '../failure.ts';
import type { Credential, Credentials } from '../identity/connections/credentials.ts';
import type { Admission } from './admission.ts';
import { withAccessAdvice } from './hints.ts';
import type { ProxyLimits } from './limits.ts';
import type { Operation, Reporter } from './reporting.ts';
import type { View } from './tool-definitions.ts';
import { listAllTools, type Listing } from './tools.ts';
import type { UpstreamCall, UpstreamClient } from './upstream/client.ts';
import { Deadline } from './upstream/deadline.ts';
import type { Params, UpstreamReply } from './upstream/envelope.ts';
import { stopping } from './upstream/failures.ts';

interface Parts {
  readonly catalogue: Pick<Catalogue, 'require'>;
  readonly credentials: Pick<Credentials, 'forCall' | 'renewed'>;
  readonly upstream: Pick<UpstreamClient, 'request'>;
  readonly admission: Pick<Admission, 'run'>;
  readonly reporter: Reporter;
  readonly limits: ProxyLimits;
}

/** A listing that a call waits for in its slot must not outlast the call by much. */
const LISTING_IN_SLOT_MS = 10_000;

/** Runs operations on catalogued servers: admitted, within a deadline, with the user's token, and reported. */
export class Calls {
  readonly #parts: Parts;
  #isStopped = false;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Refuses every further operation. */
  stop(): void {
    this.#isStopped = true;
  }

  /**
   * Runs one operation on one server.
   * @throws SwitchboardError as the methods of `Proxy` do; CallerAbortError once the caller has gone away
   */
  run<T>(
    caller: Caller,
    operation: Operation<T>,
    work: (asking: Asking, deadline: Deadline) => Promise<T>,
  ): Promise<T> {
    return this.track(caller, operation, async server => {
      const { admission, limits } = this.#parts;
      using deadline = new Deadline(caller.timeoutMs ?? limits.totalTimeoutMs, caller.signal);
      const admitted = async () => work(await Asking.start(this.#parts, caller, server, deadline), deadline);
      // Awaited here: the deadline must not end before the work.
      return await admission.run(server, caller, deadline.signal, admitted);
    });
  }

  /** Does the work on a catalogued server and reports how it ends. */
  async track<T>(caller: Caller, operation: Operation<T>, work: (server: Server) => Promise<T>): Promise<T> {
    if (this.#isStopped) throw stopping();
    const { catalogue, reporter } = this.#parts;
    const server = catalogue.require(operation.serverId);
    const startedAtMs = performance.now();
    try {
      const result = await work(server);
      reporter.succeeded(caller, operation, result, startedAtMs);
      return result;
    } catch (thrown) {
      if (thrown instanceof CallerAbortError) {
        reporter.aborted(operation, startedAtMs);
        throw thrown;
      }
      const error = withAccessAdvice(fromThrown(thrown), server.auth);
      reporter.failed(caller, operation, error, startedAtMs);
      throw error;
    }
  }

  /**
   * Lists a server's tools with the caller's account, on our own behalf: it is not reported, and no caller ends it.
   * @param where `in-slot` for a call that has its slot and waits for the listing before it sends
   */
  async listTools(caller: Caller, server: Server, where: 'in-slot' | undefined): Promise<Listing> {
    if (this.#isStopped) throw stopping();
    const { admission, limits } = this.#parts;
    const { totalTimeoutMs } = limits;
    const timeoutMs = where === 'in-slot' ? Math.min(LISTING_IN_SLOT_MS, totalTimeoutMs) : totalTimeoutMs;
    using deadline = new Deadline(timeoutMs);
    const lister = { ...caller, signal: deadline.signal, timeoutMs };
    const list = async () => this.allTools(await Asking.start(this.#parts, lister, server, deadline));
    // Awaited here: the deadline must not end before the work.
    return where === 'in-slot' ? await list() : await admission.run(server, lister, deadline.signal, list);
  }

  /** Returns all pages of a server's tools. */
  allTools(asking: Asking): Promise<Listing> {
    return listAllTools(params => asking.send('tools/list', params), this.#parts.limits);
  }
}

/**
 * Sends the requests of one operation to its server. The user's token is looked up once, before anything goes upstream. A
 * server that refuses it (401, so nothing was run) is asked once more with a newer one, where there is one.
 */
export class Asking {
  /** The answers hold for this view of the server. */
  readonly view: View;
  readonly #parts: Pick<Parts, 'credentials' | 'upstream'>;
  readonly #caller: Caller;
  readonly #deadline: Deadline;
  #credential: Credential | undefined;
  #mayRenew = true;

  private constructor(
    parts: Pick<Parts, 'credentials' | 'upstream'>,
    { caller, server, deadline }: { caller: Caller; server: Server; deadline: Deadline },
    credential: Credential | undefined,
  ) {
    this.#parts = parts;
    this.#caller = caller;
    this.#deadline = deadline;
    this.#credential = credential;
    this.view = { server, caller, connectionId: credential?.connectionId };
  }

  /** @throws SwitchboardError as `Credentials.forCall` does */
  static async start(
    parts: Pick<Parts, 'credentials' | 'upstream'>,
    caller: Caller,
    server: Server,
    deadline: Deadline,
  ): Promise<Asking> {
    const lookup = parts.credentials.forCall(caller, server);
    return new Asking(parts, { caller, server, deadline }, lookup && (await deadline.wait(lookup)));
  }

  /** @throws SwitchboardError as `UpstreamClient.request` and `Credentials.renewed` do */
  async send(
    method: string,
    params?: Params,
    onNotification?: UpstreamCall['onNotification'],
  ): Promise<UpstreamReply> {
    const { credentials } = this.#parts;
    try {
      return await this.#request(method, params, onNotification);
    } catch (error) {
      if (!this.#credential || !this.#mayRenew || !isUnauthorized(error)) throw error;
      this.#mayRenew = false;
      const renewal = credentials.renewed(this.#caller, this.view.server, this.#credential);
      const newer = await this.#deadline.wait(renewal);
      if (!newer) throw error;
      this.#credential = newer;
    }
    return this.#request(method, params, onNotification);
  }

  #request(
    method: string,
    params: Params | undefined,
    onNotification: UpstreamCall['onNotification'],
  ): Promise<UpstreamReply> {
    const { server } = this.view;
    const call = {
      caller: this.#caller,
      server,
      credential: this.#credential,
      method,
      params,
      onNotification,
    };
    return this.#parts.upstream.request(call, this.#deadline);
  }
}

const isUnauthorized = (error: unknown) =>
  error instanceof SwitchboardError && error.code === 'upstream_unauthorized';
