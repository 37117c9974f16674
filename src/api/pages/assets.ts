import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { StaticFiles } from '../http/static-files.ts';
import { noSuchPage, route, type Routes } from './page-router.ts';

const OWN = path.join(import.meta.dirname, 'assets');
const CONSOLE = path.join(import.meta.dirname, '../console/static');
const VIEWER = path.dirname(fileURLToPath(import.meta.resolve('swagger-ui-dist/package.json')));

/** The folder of each file. Nothing else of these folders is served. */
const FOLDERS: Readonly<Record<string, string>> = {
  'icon.svg': CONSOLE,
  'copy.js': OWN,
  'reference.js': OWN,
  'reference.css': OWN,
  'swagger-ui.css': VIEWER,
  'swagger-ui-bundle.js': VIEWER,
};

const files = new StaticFiles(() =>
  Promise.all(
    Object.entries(FOLDERS).map(
      async ([name, folder]) => [name, await readFile(path.join(folder, name))] as const,
    ),
  ),
);

/** Serves the icon, the scripts and the style sheets of the pages, which are the same for everybody. */
export function assetRoutes(routes: Routes): void {
  route(routes, '/assets/:name', {
    async get({ request, response, params: { name } }) {
      if (!(await files.send(request, response, name))) throw noSuchPage();
    },
  });
}
