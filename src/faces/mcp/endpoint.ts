import { createMcpHandler } from '@modelcontextprotocol/server';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { Router, type Request, type Response } from 'express';
import type { Principal } from '../../core/access/api-keys.ts';
import type { Core } from '../../core/core.ts';
import type { Log } from '../../infra/log.ts';
import { authenticate, bearerOf } from '../authentication.ts';
import { clientSignal, localsOf, singleHeader } from '../http.ts';
import { errorOf, sendRpcError } from '../problem.ts';
import { rememberingUrlElicitation } from './elicitation.ts';
import { createFaceServer } from './server.ts';

const BOTH_TYPES = 'application/json, text/event-stream';

/** `/mcp`: both protocol eras on one URL, stateless. */
export function mcpRouter(core: Core, log: Log, version: string): Router {
  const handler = createMcpHandler(
    ({ authInfo, era, requestInfo }) => {
      if (!authInfo?.extra) throw new Error('the MCP handler was reached without authentication');
      return createFaceServer({
        core,
        log,
        version,
        era,
        headers: requestInfo?.headers,
        ...(authInfo.extra as unknown as AuthExtra),
      });
    },
    { onerror: error => log.debug({ err: error }, 'mcp request refused') },
  );
  const node = toNodeHandler({ fetch: rememberingUrlElicitation(handler.fetch) });
  const router = Router({ caseSensitive: true });
  router.all('/', async (request: Request, response: Response) => {
    const { requestId } = localsOf(response);
    try {
      const principal = await authenticate(core, { ...presented(request), ip: request.ip });
      localsOf(response).principal = principal;
      acceptBothTypes(request);
      const extra = { principal, requestId, ip: request.ip, signal: clientSignal(response) };
      await node(withAuth(request, extra), response);
    } catch (thrown) {
      if (response.headersSent) return;
      const error = errorOf(thrown);
      if (error.code === 'internal') log.error({ err: thrown, requestId }, 'mcp request failed');
      sendRpcError(response, error, requestId, null);
    }
  });
  return router;
}

/**
 * `X-API-Key`, with the user's identity token as a Bearer beside it; for clients that can send nothing but a Bearer, that
 * is the key.
 */
function presented(request: Request): { key: string | undefined; token: string | undefined } {
  const key = singleHeader(request, 'x-api-key');
  const bearer = bearerOf(request);
  return key === undefined ? { key: bearer, token: undefined } : { key, token: bearer };
}

interface AuthExtra {
  readonly principal: Principal;
  readonly requestId: string;
  readonly ip: string | undefined;
  readonly signal: AbortSignal;
}

/** The token field stays empty: nothing behind this point needs the key or the identity token. */
const withAuth = (request: Request, extra: AuthExtra) =>
  Object.assign(request, {
    auth: {
      token: '',
      clientId: extra.principal.keyId,
      scopes: [...extra.principal.scopes],
      extra: { ...extra },
    },
  });

/** Clients that name no type, or any, get what the transport needs instead of a 406. */
function acceptBothTypes(request: Request): void {
  const { accept } = request.headers;
  if (accept !== undefined && accept !== '*/*') return;
  request.headers.accept = BOTH_TYPES;
  const at = request.rawHeaders.findIndex(
    (name, index) => index % 2 === 0 && name.toLowerCase() === 'accept',
  );
  if (at < 0) request.rawHeaders.push('Accept', BOTH_TYPES);
  else request.rawHeaders[at + 1] = BOTH_TYPES;
}
