import type { Router } from 'express';
import { route, type Site } from './page-router.ts';

/** How long authorization servers may cache the document, in seconds. */
const MAX_AGE_SEC = 3_600;

/** Serves the document that describes Switchboard as an OAuth client (OAuth Client ID Metadata Document). */
export function clientRoutes(router: Router, { core }: Site): void {
  route(router, '/oauth/client.json', {
    get({ response }) {
      response.set('Cache-Control', `public, max-age=${MAX_AGE_SEC}`).type('json');
      response.send(JSON.stringify(core.identity.authorization.clients.document()));
    },
  });
}
