import express, { type ErrorRequestHandler, type Express, type Request } from 'express';
import helmet from 'helmet';
import type { Config } from '../../config/index.ts';
import type { Core } from '../../core/core.ts';
import { JWKS_MAX_AGE_SEC } from '../../core/identity/tokens/signing-keys.ts';
import { sanitise } from '../../platform/sanitize.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Held } from './memory-budget.ts';
import type { HostGuard } from './host-guard.ts';
import { localsOf } from './http.ts';
import { mcpRouter } from '../mcp/endpoint.ts';
import { sendErrorPage } from '../pages/refusals.ts';
import { isPagePath, pagesRouter } from '../pages/router.ts';
import { errorOf, sendMcpError, sendProblem } from './problem.ts';
import { docsPage } from './docs.ts';
import { openApiDocument } from './openapi.ts';

interface WebAppOptions {
  readonly core: Core;
  readonly config: Config['http'];
  readonly log: Log;
  readonly version: string;
  /** Whether `/mcp` offers `read_remote_tool`. */
  readonly readTool?: boolean;
  readonly refusalOf: HostGuard;
  readonly held: Held;
}

/**
 * What is not on the hot path: the MCP face, the pages, the documents, the probes. HTML is what people look at, the pages
 * and `/docs`, errors of the pages too; every other answer is not. None has a stack trace.
 */
export function createWebApp({
  core,
  config,
  log,
  version,
  readTool = false,
  refusalOf,
  held,
}: WebAppOptions): Express {
  const app = express();
  app.disable('x-powered-by');
  app.set('etag', false);
  app.set('case sensitive routing', true);
  app.set('trust proxy', config.trustProxy);
  app.get('/healthz', (_request, response) => void response.json({ status: 'ok' }));
  app.get('/readyz', (_request, response) => {
    const { status, degraded } = core.readiness();
    response.status(status === 'ready' ? 200 : 503).json({ status, degraded });
  });
  app.get('/metrics', async (_request, response) => {
    const text = await core.metrics.text();
    // Not by `send`, which would write the parameters of the type in another order.
    response.setHeader('Content-Type', core.metrics.contentType);
    response.end(text);
  });
  app.use(
    helmet({
      contentSecurityPolicy: {
        directives: { ...NOTHING, styleSrc: ["'unsafe-inline'"] },
        useDefaults: false,
      },
    }),
  );
  app.use((request, _response, next) => next(refusalOf(request, request.path)));
  const document = openApiDocument({ version, publicUrl: config.publicUrl });
  // The same bytes for everybody, so that clients who do not read them cost nothing.
  const json = Buffer.from(JSON.stringify(document));
  const docs = Buffer.from(docsPage(document));
  app.get('/openapi.json', (_request, response) => void response.type('json').send(json));
  app.get('/docs', (_request, response) => void response.type('html').send(docs));
  app.get('/.well-known/jwks.json', async (_request, response) => {
    const keys = await core.identity.signingKeys.jwks();
    response.set('Cache-Control', `public, max-age=${JWKS_MAX_AGE_SEC}`).type('application/jwk-set+json');
    response.send(JSON.stringify(keys));
  });
  app.use(pagesRouter(core, config.publicUrl));
  app.use('/mcp', mcpRouter({ core, log, version, readTool, held }));
  app.use((request: Request) => {
    throw new SwitchboardError(
      'route_not_found',
      `There is no ${sanitise(request.path)} here. /docs lists what there is.`,
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

function renderError(log: Log): ErrorRequestHandler {
  return (thrown: unknown, request, response, _next) => {
    const { requestId } = localsOf(response);
    const error = errorOf(thrown);
    if (error.code === 'internal') log.error({ err: thrown, requestId }, 'request failed');
    if (response.headersSent) response.destroy();
    else if (isPagePath(request.path)) sendErrorPage(response, error, requestId);
    else if (/^\/mcp\/?$/.test(request.path)) sendMcpError(response, error, null);
    else sendProblem(response, error, requestId);
  };
}
