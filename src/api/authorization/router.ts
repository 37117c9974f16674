import { Router, type Request, type Response } from 'express';
import type { Grants } from '../../core/identity/grants/grants.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Cookies } from '../pages/cookies.ts';
import type { Site } from '../pages/page-router.ts';
import type { Core } from '../../core/core.ts';
import { consentRoutes } from './consent.ts';
import { METADATA_PATH, RESOURCE_METADATA_PATH, ROUTES } from './paths.ts';
import { metadataOf, resourceAt } from './resources.ts';
import { AuthorizationServer } from './server.ts';

/** The path of the issuer below the public address. */
const AUTH = '/auth';
/** Where clients look for the metadata of an authorization server (RFC 8414, OpenID Connect Discovery). */
const WELL_KNOWN = [METADATA_PATH, '/.well-known/openid-configuration'];
const METADATA_MAX_AGE_SEC = 600;
/** The paths below the issuer that are served, besides the pages of consent. */
const PATHS: ReadonlySet<string> = new Set([...Object.values(ROUTES), METADATA_PATH]);
/** The address to which the browser goes after the consent. */
const RESUME = /^\/authorize\/[\w-]+$/;
/** Authorization requests and registrations are kept for some time, so they must be short. */
const MAX_QUERY_CHARS = 8 * 1024;
const MAX_CLIENT_BYTES = 8 * 1024;

interface Options {
  readonly core: Core;
  readonly grants: Grants;
  readonly cookies: Cookies;
  /** Without a trailing slash. */
  readonly publicUrl: string;
}

/**
 * Serves the sign-in of MCP clients: the metadata that leads them to it, the authorization server, and the pages on which a user
 * signs in and consents.
 */
export function authorizationRouter({ core, grants, cookies, publicUrl }: Options): Router {
  const router = Router({ caseSensitive: true, strict: true });
  const base = new URL(publicUrl).pathname.replace(/\/+$/, '');
  const site: Site = { core, cookies, base };
  const server = new AuthorizationServer({ core, grants, publicUrl });

  router.use(RESOURCE_METADATA_PATH, allowEveryOrigin, (request, response) => {
    const path = request.path === '/' ? '/mcp' : withoutBase(request.path, base);
    const resource = resourceAt(publicUrl, path);
    if (!resource) throw new SwitchboardError('route_not_found', 'There is no MCP endpoint at this path.');
    response.set('Cache-Control', `public, max-age=${METADATA_MAX_AGE_SEC}`);
    response.json(metadataOf(resource, grants));
  });

  if (grants.external) return router;

  for (const path of WELL_KNOWN)
    router.use(path, allowEveryOrigin, (request, response, next) => {
      const isOurs = request.path === '/' || withoutBase(request.path, base) === AUTH;
      if (!isOurs) return next();
      return server.serveMetadata(request, response);
    });

  consentRoutes(router, site, { server, grants, publicUrl });

  router.use(AUTH, async (request, response) => {
    const { path, method } = request;
    // `oidc-provider` takes other spellings of a path as well, for which the limits would not hold.
    if (!PATHS.has(path) && !RESUME.test(path))
      throw new SwitchboardError('route_not_found', 'There is no such address.');
    if (path.startsWith(ROUTES.authorization)) {
      await core.rateLimits.take('page', request.ip ?? '');
      requireShort(request.url.length, MAX_QUERY_CHARS);
      const target = path === ROUTES.authorization ? server.completed(request.url) : request.url;
      return server.serve(request, response, target);
    }
    allowOrigin(response);
    if (method === 'OPTIONS') return void response.status(204).end();
    const isRegistration = path === ROUTES.registration;
    await core.rateLimits.take(isRegistration ? 'registration' : 'page', request.ip ?? '');
    if (isRegistration && method === 'POST')
      requireShort(Number(request.headers['content-length']), MAX_CLIENT_BYTES);
    return server.serve(request, response, request.url);
  });
  return router;
}

/** @param length NaN if it was not said before the body */
function requireShort(length: number, max: number): void {
  if (length <= max) return;
  throw new SwitchboardError(
    'payload_too_large',
    `Send at most ${max} bytes, and say how many with Content-Length.`,
  );
}

const withoutBase = (path: string, base: string): string =>
  base !== '' && path.startsWith(`${base}/`) ? path.slice(base.length) : path;

/** Lets clients in browsers read a response: they prove themselves by what they send, not by cookies. */
function allowOrigin(response: Response): void {
  response.set({
    'Access-Control-Allow-Origin': '*',
    'Access-Control-Allow-Methods': 'GET, POST, OPTIONS',
    'Access-Control-Allow-Headers': 'Authorization, Content-Type, MCP-Protocol-Version',
    'Access-Control-Max-Age': '3600',
  });
}

function allowEveryOrigin(request: Request, response: Response, next: () => void): void {
  allowOrigin(response);
  if (request.method === 'OPTIONS') return void response.status(204).end();
  if (request.method === 'GET' || request.method === 'HEAD') return next();
  response.set('Allow', 'GET, HEAD, OPTIONS');
  throw new SwitchboardError('method_not_allowed', `${request.method} is not allowed here.`);
}
