import express, { type ErrorRequestHandler, type Express, type Request, type RequestHandler } from 'express';
import helmet from 'helmet';
import type { Config } from '../config.ts';
import type { Core } from '../core/core.ts';
import { JWKS_MAX_AGE_SEC } from '../core/identity/signing-keys.ts';
import { SwitchboardError } from '../errors.ts';
import { newId } from '../infra/ids.ts';
import type { Clock } from '../infra/clock.ts';
import type { Log } from '../infra/log.ts';
import { hostGuard } from './host-guard.ts';
import { localsOf } from './http.ts';
import { mcpRouter } from './mcp/endpoint.ts';
import { sendErrorPage } from './pages/refusals.ts';
import { isPagePath, pagesRouter } from './pages/router.ts';
import { errorOf, sendMcpError, sendProblem, sendRpcError } from './problem.ts';
import { docsPage } from './rest/docs.ts';
import { openApiDocument } from './rest/openapi.ts';
import { restRouter } from './rest/router.ts';

interface AppOptions {
  readonly core: Core;
  readonly config: Config['http'];
  readonly log: Log;
  readonly clock: Clock;
  readonly version: string;
}

/**
 * The three faces and what is open to all in one Express app. HTML is what people look at, the pages and `/docs`, errors of
 * the pages too; every other answer is not. None has a stack trace.
 */
export function createApp({ core, config, log, clock, version }: AppOptions): Express {
  const app = express();
  app.disable('x-powered-by');
  app.set('etag', false);
  app.set('trust proxy', config.trustProxy);
  app.use(identifyAndLog(log, clock));
  app.get('/healthz', (_request, response) => void response.json({ status: 'ok' }));
  app.get('/readyz', (_request, response) => {
    const { ready, degraded } = core.readiness();
    response.status(ready ? 200 : 503).json({ status: ready ? 'ready' : 'starting', degraded });
  });
  app.use(
    helmet({
      contentSecurityPolicy: {
        directives: { ...NOTHING, styleSrc: ["'unsafe-inline'"] },
        useDefaults: false,
      },
    }),
  );
  app.use(hostGuard(config.allowedHosts, isPagePath));
  const document = openApiDocument({ version, publicUrl: config.publicUrl });
  app.get('/openapi.json', (_request, response) => void response.json(document));
  app.get('/docs', (_request, response) => void response.type('html').send(docsPage(document)));
  app.get('/.well-known/jwks.json', async (_request, response) => {
    const keys = await core.identity.signingKeys.jwks();
    response.set('Cache-Control', `public, max-age=${JWKS_MAX_AGE_SEC}`).type('application/jwk-set+json');
    response.send(JSON.stringify(keys));
  });
  app.use(pagesRouter(core, config.publicUrl));
  app.use('/mcp', mcpRouter(core, log, version));
  app.use('/v1', restRouter(core, log));
  app.use((request: Request) => {
    throw new SwitchboardError(
      'route_not_found',
      `There is no ${request.path} here. /docs lists what there is.`,
    );
  });
  app.use(renderError(log));
  return app;
}

const NOTHING = {
  defaultSrc: ["'none'"],
  frameAncestors: ["'none'"],
  baseUri: ["'none'"],
  formAction: ["'none'"],
};

/** Gives the request an id and writes one line when it ends: no header, query or body. */
function identifyAndLog(log: Log, clock: Clock): RequestHandler {
  return (request, response, next) => {
    const locals = localsOf(response);
    locals.requestId = newId('req');
    locals.arrivedMs = clock.now();
    response.set('X-Request-Id', locals.requestId);
    const startedAt = performance.now();
    const path = request.path;
    response.once('close', () => {
      // Probes come every few seconds and say nothing.
      const level = path === '/healthz' || path === '/readyz' ? 'debug' : 'info';
      log[level](
        {
          requestId: locals.requestId,
          method: request.method,
          path: withoutSecrets(path).slice(0, 200),
          status: response.statusCode,
          durationMs: Math.round((performance.now() - startedAt) * 10) / 10,
          ...(locals.principal === undefined
            ? {}
            : { tenantId: locals.principal.tenantId, keyId: locals.principal.keyId }),
          ...(response.writableFinished ? {} : { aborted: true }),
        },
        'request',
      );
    });
    next();
  };
}

/** Session ids and the links of the pages are secrets that stand in paths. */
const withoutSecrets = (path: string): string =>
  path
    .replace(
      /^(\/+(?:connect|manage|oauth\/done|v1\/identity\/sessions)\/+)[^/]+/i,
      (whole, before: string) => (OPEN_PATHS.has(whole) ? whole : `${before}:secret`),
    )
    // Wherever else one was put by mistake.
    .replaceAll(/(?:ses|sbr|link|done|page|web|sbk_live)_[\w-]{20,}|eyJ[\w.-]{20,}/g, ':secret');

const OPEN_PATHS = new Set(['/manage/disconnect', '/manage/revoke-all']);

function renderError(log: Log): ErrorRequestHandler {
  return (thrown: unknown, request, response, _next) => {
    const { requestId } = localsOf(response);
    const error = errorOf(thrown);
    if (error.code === 'internal') log.error({ err: thrown, requestId }, 'request failed');
    if (response.headersSent) response.destroy();
    else if (isPagePath(request.path)) sendErrorPage(response, error, requestId);
    else if (/^\/mcp\/?$/.test(request.path)) sendMcpError(response, error, null);
    else if (/^\/v1\/mcp\/call\/?$/.test(request.path)) sendRpcError(response, error, requestId, null);
    else sendProblem(response, error, requestId);
  };
}
