import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';

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

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.woff2': 'font/woff2',
};

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

export type Encoding = 'br' | 'gzip' | 'identity';

/** A file as it is served. */
interface ConsoleFile {
  readonly type: string;
  readonly etag: string;
  readonly bodies: Readonly<Record<Encoding, Buffer>>;
}

export type ConsoleFiles = ReadonlyMap<string, ConsoleFile>;

let files: Promise<ConsoleFiles> | undefined;

/** Returns all files by their path below `/console/`. The first caller reads and compresses them. */
export function consoleFiles(): Promise<ConsoleFiles> {
  files ??= readAll().catch((error: unknown) => {
    files = undefined;
    throw error;
  });
  return files;
}

async function readAll(): Promise<ConsoleFiles> {
  const names = (await readdir(STATIC, { recursive: true, withFileTypes: true }))
    .filter(entry => entry.isFile() && TYPES[path.extname(entry.name)] !== undefined)
    .map(entry => path.relative(STATIC, path.join(entry.parentPath, entry.name)));
  const own = names.map(async name => {
    const bytes = await readFile(path.join(STATIC, name));
    return toServed(name.split(path.sep).join('/'), name === 'index.html' ? withImportMap(bytes) : bytes);
  });
  const ofPackages = [...Object.values(MODULES), STYLES].map(async ({ file, served }) => {
    const text = await readFile(new URL(import.meta.resolve(file)), 'utf8');
    // The maps are not served.
    return toServed(served, Buffer.from(text.replace(/\n\/\/# sourceMappingURL=\S+\s*$/, '\n')));
  });
  return new Map(await Promise.all([...own, ...ofPackages]));
}

const withImportMap = (html: Buffer): Buffer =>
  Buffer.from(
    html.toString('utf8').replace(IMPORT_MAP_PLACE, `<script type="importmap">${IMPORT_MAP}</script>`),
  );

/** A tenth larger than with the best quality, in a hundredth of the time. */
const BROTLI = { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } };

async function toServed(name: string, bytes: Buffer): Promise<[string, ConsoleFile]> {
  const [br, gzipped] = await Promise.all([promisify(brotliCompress)(bytes, BROTLI), promisify(gzip)(bytes)]);
  const digest = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  const type = TYPES[path.extname(name)] ?? 'application/octet-stream';
  return [name, { type, etag: digest, bodies: { br, gzip: gzipped, identity: bytes } }];
}
