import { Router } from 'express';
import type { Core } from '../../core/core.ts';
import { Cookies } from './cookies.ts';
import { manageRoutes } from './manage-routes.ts';
import { signInRoutes } from './sign-in-routes.ts';

/** Everything below these is a page for people, errors too. */
export const isPagePath = (path: string): boolean => /^\/(?:connect|manage|oauth)(?:\/|$)/.test(path);

/** The third face: pages of HTML for end users, who sign in, confirm, undo, and see and end what is connected. */
export function pagesRouter(core: Core, publicUrl: string | undefined): Router {
  const router = Router({ caseSensitive: true, strict: true });
  const site = {
    core,
    cookies: new Cookies(publicUrl?.startsWith('https:') ?? false),
    base: publicUrl === undefined ? '' : new URL(publicUrl).pathname.replace(/\/+$/, ''),
  };
  signInRoutes(router, site);
  manageRoutes(router, site);
  return router;
}
