import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { noSuchPage, route, type Routes } from './page-router.ts';

/** How long browsers may use a file without asking again, in milliseconds. */
const MAX_AGE_MS = 3_600_000;

const OWN = path.join(import.meta.dirname, 'assets');
const VIEWER = path.dirname(fileURLToPath(import.meta.resolve('swagger-ui-dist/package.json')));

/** The folder of each file. Nothing else of these folders is served. */
const FOLDERS: ReadonlyMap<string, string> = new Map([
  ['copy.js', OWN],
  ['reference.js', OWN],
  ['reference.css', OWN],
  ['swagger-ui.css', VIEWER],
  ['swagger-ui-bundle.js', VIEWER],
]);

/** Serves the scripts and style sheets of the pages, which are the same for everybody. */
export function assetRoutes(routes: Routes): void {
  route(routes, '/assets/:name', {
    get({ response, params: { name } }) {
      const root = FOLDERS.get(name);
      if (root === undefined) throw noSuchPage();
      response.sendFile(name, { root, maxAge: MAX_AGE_MS });
    },
  });
}
