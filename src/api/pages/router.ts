import { Router } from 'express';
import type { Core } from '../../core/core.ts';
import { isPagePath } from '../http/request.ts';
import { assetRoutes } from './assets.ts';
import type { Cookies } from './cookies.ts';
import { homeRoutes } from './home.ts';
import { manageRoutes } from './manage.ts';
import type { Routes } from './page-router.ts';
import { referenceRoutes } from './reference.ts';
import { clientRoutes } from './client-metadata.ts';
import { signInRoutes } from './sign-in.ts';

/** Serves the HTML pages on which end users sign in, confirm, undo, and see and end connections. */
export function pagesRouter(core: Core, cookies: Cookies, publicUrl: string | undefined): Router {
  const router = Router({ caseSensitive: true, strict: true });
  const site = { core, cookies, base: basePathOf(publicUrl) };
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

/** Serves the pages that need neither a key nor a link: home and the reference, with their files. */
export function openPages(routes: Routes, options: Parameters<typeof homeRoutes>[1]): void {
  homeRoutes(routes, options);
  referenceRoutes(routes, { version: options.version, base: basePathOf(options.publicUrl) });
  assetRoutes(routes);
}

/** Returns the path prefix of the public address: '' or for instance `/switchboard`. */
const basePathOf = (publicUrl: string | undefined): string =>
  publicUrl === undefined ? '' : new URL(publicUrl).pathname.replace(/\/+$/, '');
