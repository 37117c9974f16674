import type { ServerResponse } from 'node:http';
import { countUnclassed, type Policy } from '../../core/access/admit.ts';
import { fromThrown } from '../../core/failure.ts';
import { messagesIn } from '../../core/proxy/pass-through-messages.ts';
import type { Sink } from '../../core/proxy/upstream/http-stream.ts';
import { SwitchboardError } from '../../errors.ts';
import { readBody } from '../http/body.ts';
import { MIB } from '../http/endpoint.ts';
import { byKey, methodNotAllowed, pipeline, type Handler, type PipelineOptions } from '../http/pipeline.ts';
import { rpcIdOf, type RpcId } from '../http/render-error.ts';
import { requestedTimeoutMs, writeHead, writeInBatch } from '../http/request.ts';

const PREFIX = '/mcp/';
const METHODS = ['GET', 'POST', 'DELETE'] as const;
/** Larger bodies are not parsed for an error's id, which would not be worth the cost. */
const MAX_PARSED_BYTES = 64 * 1024;

const POLICY: Policy = { scope: 'proxy', rateLimit: 'proxy', quota: 'calls', user: 'by-call' };

/**
 * Serves `/mcp/{server_id}`: passes through to one catalogued server, in the revision that client and server negotiate. Each
 * message of a batch counts as a call.
 */
export function passThroughHandler({ core, log, budget }: PipelineOptions): Handler {
  const principalOf = byKey(core);
  return pipeline({ core, log, principalOf, route: '/mcp/:server_id' }, async exchange => {
    const { request, response, path, principal } = exchange;
    const serverId = serverIdOf(path);
    if (serverId === undefined) throw await countUnclassed(core, principal, nothingHere());
    const method = METHODS.find(one => one === request.method);
    if (method === undefined)
      throw await countUnclassed(
        core,
        principal,
        methodNotAllowed(response, request.method, METHODS.join(', ')),
      );
    const { caller: admitted, input } = await exchange.admit(
      POLICY,
      async () => {
        const timeoutMs = requestedTimeoutMs(request);
        requireUtf8(request.headers['content-type']);
        const room = { maxBytes: 4 * MIB, budget, keyId: principal.keyId };
        const body = method === 'POST' ? await readBody(request, response, room) : undefined;
        exchange.findRpcId(() => idOf(body));
        return { body, timeoutMs };
      },
      ({ body }) => (body ? messagesIn(body) : 0),
    );
    const { body, timeoutMs } = input;
    const caller = {
      ...admitted,
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      // The link is relayed by an agent, as at `/mcp`.
      signInMode: 'page' as const,
    };
    const requireLive = async () => {
      core.catalogue.require(serverId);
      await principalOf(request, response, path);
      await core.identity.credentials.requireLive(caller);
    };
    const recheck = () => void requireLive().catch(endUnlessOurs(response));
    const watch = (listener: () => void) => core.apiKeys.watch(principal.keyId, listener);
    const passed = { serverId, method, headers: request.headers, body, recheck, watch };
    await core.proxy.passThrough(caller, passed, new ResponseSink(response));
  });
}

/** Refuses other charsets, in which the messages of a batch could not be counted. @throws SwitchboardError */
function requireUtf8(contentType = ''): void {
  const charset = /;\s*charset\s*=\s*"?([^\s";]*)/i.exec(contentType)?.[1];
  if (charset === undefined || /^utf-?8$/i.test(charset)) return;
  throw new SwitchboardError('unsupported_media_type', 'Send the body in UTF-8.');
}

/** A larger chunk is written at once, with all before it. */
const SMALL_BYTES = 16 * 1024;

/** The response as a sink for the server's response. The first bytes are written with other responses (`writeInBatch`). */
class ResponseSink implements Sink {
  readonly #response: ServerResponse;
  /** The steps to take in the batch; undefined once it was written. */
  #held: (() => void)[] | undefined;

  constructor(response: ServerResponse) {
    this.#response = response;
  }

  writeHead(status: number, headers: Readonly<Record<string, string>>): void {
    // Node sends them with the first bytes.
    writeHead(this.#response, status, headers);
    this.#held = [];
    writeInBatch(() => this.#release());
  }

  flushHeaders(): void {
    this.#take(() => this.#response.flushHeaders());
  }

  write(chunk: Buffer): boolean {
    if (chunk.length > SMALL_BYTES) this.#release();
    if (!this.#held) return this.#response.write(chunk);
    this.#held.push(() => this.#response.write(chunk));
    return true;
  }

  end(): void {
    this.#take(() => this.#response.end());
  }

  destroy(): void {
    this.#held = undefined;
    this.#response.destroy();
  }

  once(event: 'drain', listener: () => void): void {
    this.#response.once(event, listener);
  }

  #take(step: () => void): void {
    if (this.#held) this.#held.push(step);
    else step();
  }

  #release(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const step of held) step();
  }
}

/**
 * Returns the id in a path. Ids need no encoding in a URL, so nothing is decoded. One trailing slash is allowed, as after `/mcp`.
 */
function serverIdOf(path: string): string | undefined {
  const id = path.slice(PREFIX.length).replace(/\/$/, '');
  return id === '' || id.includes('/') ? undefined : id;
}

const nothingHere = () =>
  new SwitchboardError('route_not_found', 'This path does not exist. Servers are at /mcp/{server_id}.');

/** Ends the stream if its key, user or server is no longer valid, but not if the database is temporarily unavailable. */
const endUnlessOurs = (response: ServerResponse) => (thrown: unknown) => {
  if (fromThrown(thrown).status < 500) response.destroy();
};

function idOf(body: Buffer | undefined): RpcId {
  if (body === undefined || body.length > MAX_PARSED_BYTES) return null;
  try {
    return rpcIdOf(JSON.parse(body.toString()), null);
  } catch {
    return null;
  }
}
