import { Router } from 'express';
import type { Core } from '../../core/core.ts';
import { isPagePath } from '../http/request.ts';
import { Cookies } from './cookies.ts';
import { manageRoutes } from './manage.ts';
import { clientRoutes } from './client-metadata.ts';
import { signInRoutes } from './sign-in.ts';

/** Serves the HTML pages on which end users sign in, confirm, undo, and see and end connections. */
export function pagesRouter(core: Core, publicUrl: string | undefined): Router {
  const router = Router({ caseSensitive: true, strict: true });
  const site = {
    core,
    cookies: new Cookies(publicUrl?.startsWith('https:') ?? false),
    base: publicUrl === undefined ? '' : new URL(publicUrl).pathname.replace(/\/+$/, ''),
  };
  // Before everything else: a guessed link must not cost a database query.
  router.use(async (request, _response, next) => {
    if (isPagePath(request.path)) await core.rateLimits.take('page', request.ip ?? '');
    next();
  });
  clientRoutes(router, site);
  signInRoutes(router, site);
  manageRoutes(router, site);
  return router;
}
