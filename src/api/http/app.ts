import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { Config } from '../../config/index.ts';
import type { Core } from '../../core/core.ts';
import type { Clock } from '../../platform/clock.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { within, type Tracing } from '../../platform/telemetry/tracing.ts';
import { defaultHeldLimits, HeldBytes, type HeldLimits } from './memory-budget.ts';
import { hostGuard } from './host-guard.ts';
import { addHeaders } from './http.ts';
import { CONNECTION_LIMITS, inTurn, type ConnectionLimits } from './serialize-pipelined.ts';
import { isPassThrough, passThroughFace } from '../mcp/pass-through.ts';
import { isPagePath } from '../pages/router.ts';
import { sendMcpError, sendRpcError } from './problem.ts';
import { pathOf, requestStarter } from './request.ts';
import { isRegistryPath, isRpcPath, restHandler, sendRestProblem } from '../rest/router.ts';
import { createWebApp } from './web-app.ts';

export type FaceLimits = HeldLimits & ConnectionLimits;

interface AppOptions {
  readonly core: Core;
  readonly config: Config['http'];
  readonly log: Log;
  readonly clock: Clock;
  readonly version: string;
  /** Whether `/mcp` offers `read_remote_tool`. */
  readonly readTool?: boolean;
  readonly tracing?: Tracing | undefined;
  /** Whether the registry's part is served without a key. */
  readonly isRegistryPublic?: boolean;
  /** For tests. */
  readonly limits?: Partial<FaceLimits> | undefined;
}

/**
 * All that comes in. `/v1`, `/v0.1` and `/mcp/{server_id}` are served on node:http itself: Express and its middleware were among the
 * largest costs of a proxied call (bench/RESULTS.md). Everything else goes to Express.
 */
export function createApp(options: AppOptions): RequestListener {
  const { core, config, log, clock } = options;
  const start = requestStarter({
    trustProxy: config.trustProxy,
    log,
    clock,
    metrics: core.metrics.http,
    tracing: options.tracing,
  });
  const refusalOf = hostGuard(config.allowedHosts, isPagePath);
  const limits = { ...defaultHeldLimits(), ...CONNECTION_LIMITS, ...options.limits };
  const held = { bodies: new HeldBytes(limits), answers: new HeldBytes(limits) };
  const web = createWebApp({ ...options, refusalOf, held });
  const rest = restHandler(core, log, held, options.isRegistryPublic ?? false);
  const passThrough = passThroughFace(core, log, held);
  const serve = (request: IncomingMessage, response: ServerResponse, requestId: string) => {
    const path = pathOf(request);
    const isPassed = isPassThrough(path);
    if (!isPassed && !path.startsWith('/v1/') && !isRegistryPath(path)) {
      response.setHeader('X-Request-Id', requestId);
      web(request, response);
      return;
    }
    addHeaders(response, { 'X-Request-Id': requestId, ...PROTECTION });
    const refusal = refusalOf(request, path);
    if (!refusal) void (isPassed ? passThrough : rest)(request, response, path);
    else if (isPassed) sendMcpError(response, refusal, null);
    else if (isRpcPath(path)) sendRpcError(response, refusal, requestId, null);
    else sendRestProblem(response, refusal, requestId, path);
  };
  return inTurn((request, response) => {
    request.url = originForm(request.url ?? '/');
    const { requestId, span } = start(request, response);
    within(span, () => serve(request, response, requestId));
  }, limits);
}

/** A target that names the host as well, as to a proxy, is to be taken too (RFC 9112 §3.2.2). */
function originForm(target: string): string {
  if (target.startsWith('/')) return target;
  const url = URL.parse(target);
  return url ? `${url.pathname}${url.search}` : target;
}

/** What keeps a browser from taking an answer of an API for a page. */
const PROTECTION = {
  'X-Content-Type-Options': 'nosniff',
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
  'Strict-Transport-Security': 'max-age=31536000; includeSubDomains',
};
