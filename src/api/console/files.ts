import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { isServable, StaticFiles } from '../http/static-files.ts';

const STATIC = fileURLToPath(new URL('static', import.meta.url));

/** The modules of packages: the bare names that files import, and their addresses. */
const MODULES: Readonly<Record<string, string>> = {
  preact: 'lib/preact.js',
  'preact/hooks': 'lib/preact-hooks.js',
  htm: 'lib/htm.js',
  'htm/preact': 'lib/htm-preact.js',
  '@preact/signals': 'lib/signals.js',
  '@preact/signals-core': 'lib/signals-core.js',
  uplot: 'lib/uplot.js',
};
/** Node would load another module of this package, which is not for browsers. */
const UPLOT = 'uplot/dist/uPlot.esm.js';
const STYLES = ['uplot/dist/uPlot.min.css', 'lib/uplot.css'] as const;

/** The addresses of the modules, for browsers. They are relative to the page, which may be below a prefix. */
const IMPORT_MAP = JSON.stringify({
  imports: Object.fromEntries(Object.entries(MODULES).map(([name, served]) => [name, `./${served}`])),
});
const IMPORT_MAP_PLACE = '<!-- import map -->';

/** Nothing comes from elsewhere, and no script but the import map is inline. */
export const PAGE_POLICY = [
  "default-src 'none'",
  `script-src 'self' 'sha256-${createHash('sha256').update(IMPORT_MAP).digest('base64')}'`,
  "style-src 'self'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ');

/** All files by their path below `/console/`. */
export const consoleFiles = new StaticFiles(readAll);

async function readAll(): Promise<(readonly [name: string, bytes: Buffer])[]> {
  const names = (await readdir(STATIC, { recursive: true, withFileTypes: true }))
    .filter(entry => entry.isFile() && isServable(entry.name))
    .map(entry => path.relative(STATIC, path.join(entry.parentPath, entry.name)));
  const own = names.map(async name => {
    const bytes = await readFile(path.join(STATIC, name));
    return [name.split(path.sep).join('/'), name === 'index.html' ? withImportMap(bytes) : bytes] as const;
  });
  const ofPackages = [...Object.entries(MODULES), STYLES].map(async ([name, served]) => {
    const text = await readFile(new URL(import.meta.resolve(name === 'uplot' ? UPLOT : name)), 'utf8');
    // The maps are not served.
    return [served, Buffer.from(text.replace(/\n\/\/# sourceMappingURL=\S+\s*$/, '\n'))] as const;
  });
  return Promise.all([...own, ...ofPackages]);
}

const withImportMap = (html: Buffer): Buffer =>
  Buffer.from(
    html.toString('utf8').replace(IMPORT_MAP_PLACE, `<script type="importmap">${IMPORT_MAP}</script>`),
  );
