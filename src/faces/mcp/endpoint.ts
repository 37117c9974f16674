import { createMcpHandler } from '@modelcontextprotocol/server';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { Router, type Request, type Response } from 'express';
import type { Identity } from '../../core/access/api-keys.ts';
import type { Core } from '../../core/core.ts';
import { SwitchboardError, toSwitchboardError } from '../../errors.ts';
import type { Log } from '../../infra/log.ts';
import { clientSignal, localsOf, singleHeader } from '../http.ts';
import { sendRpcError } from '../problem.ts';
import { createFaceServer } from './server.ts';

const BOTH_TYPES = 'application/json, text/event-stream';

/** `/mcp`: both protocol eras on one URL, stateless. */
export function mcpRouter(core: Core, log: Log, version: string): Router {
  const handler = createMcpHandler(
    ({ authInfo }) => {
      if (!authInfo?.extra) throw new Error('the MCP handler was reached without authentication');
      return createFaceServer({
        core,
        log,
        version,
        ...(authInfo.extra as unknown as AuthExtra),
      });
    },
    { onerror: error => log.debug({ err: error }, 'mcp request refused') },
  );
  const node = toNodeHandler(handler);
  const router = Router({ caseSensitive: true });
  router.all('/', async (request: Request, response: Response) => {
    const { requestId } = localsOf(response);
    try {
      const identity = await core.apiKeys.authenticate(presentedKey(request));
      localsOf(response).identity = identity;
      acceptBothTypes(request);
      await node(withAuth(request, { identity, requestId, signal: clientSignal(response) }), response);
    } catch (thrown) {
      if (response.headersSent) return;
      const error = toSwitchboardError(thrown);
      if (error.code === 'internal') log.error({ err: thrown, requestId }, 'mcp request failed');
      sendRpcError(response, error, requestId, null);
    }
  });
  return router;
}

/**
 * `X-API-Key`, or the key as a Bearer token for clients that can only send that. Beside `X-API-Key` a Bearer would be an
 * identity token, which this version cannot check: refused rather than ignored.
 */
function presentedKey(request: Request): string | undefined {
  const key = singleHeader(request, 'x-api-key');
  const bearer = /^Bearer +(\S+)$/i.exec(singleHeader(request, 'authorization') ?? '')?.[1];
  if (key !== undefined && bearer !== undefined) {
    throw new SwitchboardError(
      'unauthorized',
      'Identity tokens are not supported yet: send X-API-Key or a Bearer key, not both.',
    );
  }
  return key ?? bearer;
}

interface AuthExtra {
  readonly identity: Identity;
  readonly requestId: string;
  readonly signal: AbortSignal;
}

/** The token field stays empty: nothing behind this point needs the key. */
const withAuth = (request: Request, extra: AuthExtra) =>
  Object.assign(request, {
    auth: {
      token: '',
      clientId: extra.identity.keyId,
      scopes: [...extra.identity.scopes],
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
