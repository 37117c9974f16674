import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { isServable, StaticFiles } from '../http/static-files.ts';

const STATIC = fileURLToPath(new URL('static', import.meta.url));

/** The modules of packages: the bare names that files import, and what they are served as. */
const MODULES: Readonly<Record<string, { readonly file: string; readonly served: string }>> = {
  preact: { file: 'preact', served: 'lib/preact.js' },
  'preact/hooks': { file: 'preact/hooks', served: 'lib/preact-hooks.js' },
  htm: { file: 'htm', served: 'lib/htm.js' },
  'htm/preact': { file: 'htm/preact', served: 'lib/htm-preact.js' },
  '@preact/signals': { file: '@preact/signals', served: 'lib/signals.js' },
  '@preact/signals-core': { file: '@preact/signals-core', served: 'lib/signals-core.js' },
  uplot: { file: 'uplot/dist/uPlot.esm.js', served: 'lib/uplot.js' },
};
const STYLES = { file: 'uplot/dist/uPlot.min.css', served: 'lib/uplot.css' };

/** The addresses of the modules, for browsers. They are relative to the page, which may be below a prefix. */
const IMPORT_MAP = JSON.stringify({
  imports: Object.fromEntries(Object.entries(MODULES).map(([name, { served }]) => [name, `./${served}`])),
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
  const ofPackages = [...Object.values(MODULES), STYLES].map(async ({ file, served }) => {
    const text = await readFile(new URL(import.meta.resolve(file)), 'utf8');
    // The maps are not served.
    return [served, Buffer.from(text.replace(/\n\/\/# sourceMappingURL=\S+\s*$/, '\n'))] as const;
  });
  return Promise.all([...own, ...ofPackages]);
}

const withImportMap = (html: Buffer): Buffer =>
  Buffer.from(
    html.toString('utf8').replace(IMPORT_MAP_PLACE, `<script type="importmap">${IMPORT_MAP}</script>`),
  );
