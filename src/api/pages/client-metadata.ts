import type { Router } from 'express';
import { noSuchPage, route, type Site } from './page-router.ts';

/** How long authorization servers may cache the documents, in seconds. */
const MAX_AGE_SEC = 3_600;

/** Serves the documents that describe Switchboard as an OAuth client (OAuth Client ID Metadata Document). */
export function clientRoutes(router: Router, { core }: Site): void {
  for (const path of ['/oauth/client.json', '/oauth/client/:name'] as const) {
    route(router, path, {
      get({ response, params }) {
        const key = 'name' in params ? /^([\w-]{16})\.json$/.exec(params.name)?.[1] : undefined;
        if ('name' in params && key === undefined) throw noSuchPage();
        response.set('Cache-Control', `public, max-age=${MAX_AGE_SEC}`).type('json');
        response.send(JSON.stringify(core.identity.authorization.clients.document(key)));
        return Promise.resolve();
      },
    });
  }
}
