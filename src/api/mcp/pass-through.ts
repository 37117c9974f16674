import type { IncomingMessage, ServerResponse } from 'node:http';
import { requireScope } from '../../core/access/authorise.ts';
import type { Principal } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import { messagesIn, passThroughStatus } from '../../core/proxy/pass-through-messages.ts';
import { CallerAbortError } from '../../core/proxy/proxy.ts';
import type { Sink } from '../../core/proxy/upstream/http.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { authenticate, presented } from '../http/authenticate.ts';
import { readBody } from '../http/body.ts';
import type { Held } from '../http/memory-budget.ts';
import {
  addHeaders,
  clientSignal,
  localsOf,
  quotaHeaders,
  rateLimitHeaders,
  requestedTimeoutMs,
  toCaller,
  writeHead,
} from '../http/http.ts';
import { errorOf, rpcIdOf, sendMcpError, type RpcId } from '../http/problem.ts';

const PREFIX = '/mcp/';
const METHODS = ['GET', 'POST', 'DELETE'] as const;
const MAX_BODY_BYTES = 4 * 1024 * 1024;
/** What an error's id is looked for in: parsing more would cost more than the id is worth. */
const MAX_PARSED_BYTES = 64 * 1024;

/** Whether a path, as it came, is one of a server: `/mcp` and `/mcp/` are the face's own. */
export const isPassThrough = (path: string): boolean =>
  path.startsWith(PREFIX) && path.length > PREFIX.length;

/**
 * `/mcp/{server_id}`: one catalogued server itself, in whatever revision client and server agree on. On node:http itself, as it is
 * the path of most bytes.
 */
export function passThroughFace(core: Core, log: Log, { bodies }: Held) {
  return async (request: IncomingMessage, response: ServerResponse, path: string): Promise<void> => {
    let body: Buffer | undefined;
    const locals = localsOf(response);
    locals.route = '/mcp/:server_id';
    try {
      const { requestId, ip } = locals;
      const authentic = () => authenticate(core, { ...presented(request), ip });
      const principal = await authentic();
      locals.principal = principal;
      const { serverId, method, timeoutMs } = await targetOf(core, principal, path, request, response);
      const room = { maxBytes: MAX_BODY_BYTES, bodies, keyId: principal.keyId };
      const read = method === 'POST' ? () => readBody(request, response, room) : undefined;
      body = await spendAndRead(core, principal, response, read);
      const quota = body && (await core.apiKeys.use.spend(principal, 'calls', messagesIn(body)));
      if (quota) addHeaders(response, quotaHeaders(quota));
      const caller = {
        ...toCaller(principal, { requestId, ip, timeoutMs, signal: clientSignal(response) }),
        // As at `/mcp`: the link goes through an agent.
        signInMode: 'page' as const,
      };
      const requireLive = async () => {
        core.catalogue.require(serverId);
        await authentic();
        await core.identity.credentials.requireLive(caller);
      };
      const recheck = () => void requireLive().catch(endUnlessOurs(response));
      const passed = { serverId, method, headers: request.headers, body, recheck };
      await core.proxy.passThrough(caller, passed, sinkOf(response));
    } catch (thrown) {
      refuse(thrown, { response, requestId: locals.requestId, body, log });
    }
  };
}

/** One call is spent before a body is read, and then one for each further message of a batch. @throws SwitchboardError */
async function spendAndRead(
  { rateLimits }: Core,
  { keyId }: Principal,
  response: ServerResponse,
  read: (() => Promise<Buffer>) | undefined,
): Promise<Buffer | undefined> {
  let state = await rateLimits.spend(keyId, 'proxy');
  try {
    const body = await read?.();
    const messages = body === undefined ? 1 : messagesIn(body);
    rateLimits.requireSpendable('proxy', messages);
    const more = messages - 1;
    if (more > 0) {
      // A refusal brings a state of its own.
      state = undefined;
      state = await rateLimits.spend(keyId, 'proxy', more);
    }
    return body;
  } finally {
    if (state) addHeaders(response, rateLimitHeaders(state));
  }
}

/** The response, as what the server's answer is written to. */
const sinkOf = (response: ServerResponse): Sink => ({
  writeHead: (status, headers) => writeHead(response, status, headers),
  flushHeaders: () => response.flushHeaders(),
  write: chunk => response.write(chunk),
  end: () => response.end(),
  destroy: () => response.destroy(),
  once: (event, listener) => response.once(event, listener),
});

/** What it is for, and how long that may take. Refused here, it has not come to its class. @throws SwitchboardError */
async function targetOf(
  core: Core,
  principal: Principal,
  path: string,
  request: IncomingMessage,
  response: ServerResponse,
) {
  try {
    requireScope(principal, 'proxy');
    return {
      serverId: serverIdOf(path),
      method: requireMethod(request, response),
      timeoutMs: requestedTimeoutMs(request),
    };
  } catch (refusal) {
    await core.rateLimits.take('unclassed', principal.keyId);
    throw refusal;
  }
}

/** Ids hold nothing that is encoded in a URL, so nothing is decoded. One slash at the end is let pass, as after `/mcp`. */
function serverIdOf(path: string): string {
  const id = path.slice(PREFIX.length).replace(/\/$/, '');
  if (id !== '' && !id.includes('/')) return id;
  throw new SwitchboardError(
    'route_not_found',
    'There is nothing at this path. A server is at /mcp/{server_id}.',
  );
}

function requireMethod(request: IncomingMessage, response: ServerResponse): (typeof METHODS)[number] {
  const method = METHODS.find(one => one === request.method);
  if (method) return method;
  addHeaders(response, { Allow: METHODS.join(', ') });
  throw new SwitchboardError(
    'method_not_allowed',
    `${request.method} is not possible here. Use ${METHODS.join(', ')}.`,
  );
}

/** A key, user or server that no longer holds ends the stream; a database that cannot be asked just now does not. */
const endUnlessOurs = (response: ServerResponse) => (thrown: unknown) => {
  if (errorOf(thrown).status < 500) response.destroy();
};

interface Refused {
  readonly response: ServerResponse;
  readonly requestId: string;
  readonly body: Buffer | undefined;
  readonly log: Log;
}

function refuse(thrown: unknown, { response, requestId, body, log }: Refused): void {
  if (response.headersSent || response.destroyed || thrown instanceof CallerAbortError) {
    response.destroy();
    return;
  }
  const error = withoutSecret(errorOf(thrown));
  if (error.code === 'internal') log.error({ err: thrown, requestId }, 'mcp request failed');
  sendMcpError(response, error, idOf(body), passThroughStatus(error));
}

/** Clients put the body of an error before their model, where the session's id does not belong (see `askToSignIn`). */
function withoutSecret(error: SwitchboardError): SwitchboardError {
  if (error.code !== 'connection_required') return error;
  const { session_id: _secret, ...members } = error.members;
  return new SwitchboardError(error.code, error.detail, { members });
}

function idOf(body: Buffer | undefined): RpcId {
  if (body === undefined || body.length > MAX_PARSED_BYTES) return null;
  try {
    return rpcIdOf(JSON.parse(body.toString()), null);
  } catch {
    return null;
  }
}
