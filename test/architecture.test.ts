import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';

/**
 * Who may import whom inside src: main -> app -> assembly -> api -> core -> platform. Every folder may import itself and `errors.ts`; the first row
 * that matches the importing file counts.
 */
const DIRECTIONS: readonly [from: RegExp, to: RegExp][] = [
  [/^main\.ts$/, /^(cli|config|platform)\//],
  [/^cli\//, /^((app|stores)\.ts$|config\/|core\/(access\/caller\.ts$|identity\/vault\/)|platform\/)/],
  [/^app\.ts$/, /^((assembly|stores)\.ts$|(config|platform)\/)/],
  [/^assembly\.ts$/, /^(stores\.ts$|(api|config|core|platform)\/)/],
  [/^stores\.ts$/, /^(config\/|core\/identity\/vault\/|platform\/)/],
  [/^api\/http\//, /^(api|config|core|platform)\//],
  [/^api\/rest\//, /^(api\/(http|admin)|config|core|platform)\//],
  [/^api\/authorization\//, /^(api\/(http|pages)|config|core|platform)\//],
  [/^api\/console\//, /^(api\/(http|pages)|config|core|platform)\//],
  [/^api\/(mcp|pages|admin)\//, /^(api\/http|config|core|platform)\//],
  [/^core\/[\w-]+\.ts$/, /^(config|core|platform)\//],
  [/^core\/catalogue\//, /^(core\/[\w-]+\.ts$|platform\/)/],
  [/^core\/access\//, /^(config\/|core\/[\w-]+\.ts$|platform\/)/],
  [/^core\/(search|registry)\//, /^(core\/(access|catalogue)\/|core\/[\w-]+\.ts$|platform\/)/],
  [
    /^core\/identity\//,
    /^(core\/access\/|core\/catalogue\/(entry|credential-schema)\.ts$|core\/[\w-]+\.ts$|config\/|platform\/)/,
  ],
  [/^core\/proxy\//, /^(core\/(access|catalogue|identity)\/|core\/[\w-]+\.ts$|platform\/)/],
  [/^core\/health\//, /^(core\/(access|catalogue|proxy)\/|core\/[\w-]+\.ts$|platform\/)/],
  [/^core\/results\//, /^(core\/access\/|core\/[\w-]+\.ts$|platform\/)/],
  [/^config\//, /^platform\//],
  [/^platform\//, /^platform\//],
  [/^errors\.ts$/, /^platform\//],
];

/** Packages that belong to one place; every other package may be used where it is useful. */
const HOMES: Readonly<Record<string, RegExp>> = {
  express: /^api\//,
  helmet: /^api\/http\/app\.ts$/,
  accepts: /^api\/mcp\/endpoint\.ts$/,
  '@modelcontextprotocol/server': /^api\/mcp\//,
  '@modelcontextprotocol/node': /^api\/mcp\/endpoint\.ts$/,
  undici: /^(core\/proxy\/|platform\/outbound\/|cli\/)/,
  'ipaddr.js': /^platform\/outbound\/guard\.ts$/,
  '@cfworker/json-schema': /^core\/proxy\/arguments\//,
  'oidc-provider': /^api\/authorization\//,
  jose: /^core\/identity\//,
  'openid-client': /^core\/identity\/connections\/provider\.ts$/,
  'drizzle-orm': /^(core|platform\/database)\//,
  pg: /^platform\/database\/(postgres|listen)\.ts$/,
  '@electric-sql/pglite': /^platform\/database\/(database|dump)\.ts$/,
  '@electric-sql/pglite-tools': /^platform\/database\/dump\.ts$/,
  'prom-client': /^platform\/telemetry\/metrics(-\w+)?\.ts$/,
  pino: /^platform\/telemetry\/log\.ts$/,
  'rate-limiter-flexible': /^core\/access\/rate-limits\.ts$/,
  meilisearch: /^core\/search\/index\/meilisearch-(engine|sync)\.ts$/,
  openai: /^core\/search\/embed\/openai-api\.ts$/,
  ...Object.fromEntries(
    ['api', 'core', 'exporter-trace-otlp-proto', 'resources', 'sdk-trace'].map(name => [
      `@opentelemetry/${name}`,
      /^platform\/telemetry\/tracing-otel\.ts$/,
    ]),
  ),
  stemmer: /^core\/search\/documents\.ts$/,
};

const MAX_FILES = 15;

const PRODUCT_WORDS =
  /\b(catalogues?|tenants?|upstreams?|embeddings?|vaults?|identity|providers? tokens?)\b/i;

const files = globSync('src/**/*.ts')
  .map(file => path.relative('src', file))
  .filter(file => !file.endsWith('.as.ts'));

const importsOf = (file: string) =>
  [...readFileSync(path.join('src', file), 'utf8').matchAll(/(?:from|import\()\s*'([^']+)'/g)].map(
    match => match[1] ?? '',
  );

const localImports = (file: string) =>
  importsOf(file)
    .filter(specifier => specifier.startsWith('.'))
    .map(specifier => path.join(path.dirname(file), specifier));

/** Imports that are there when a file is loaded, and those of types. */
const staticImports = (file: string) =>
  [...readFileSync(path.join('src', file), 'utf8').matchAll(/from\s*'(\.[^']+)'/g)].map(
    ([, specifier = '']) => path.join(path.dirname(file), specifier),
  );

const packageOf = (specifier: string) =>
  specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');

describe('the structure', () => {
  it('was read: every file has a rule and every import is a file', () => {
    expect(files.length).toBeGreaterThan(30);
    expect(files.filter(file => !DIRECTIONS.some(([from]) => from.test(file)))).toEqual([]);
    expect(files.flatMap(localImports).filter(target => !existsSync(path.join('src', target)))).toEqual([]);
  });

  it('has imports only in the allowed direction', () => {
    const wrong = files.flatMap(file => {
      const allowed = DIRECTIONS.find(([from]) => from.test(file))?.[1] ?? /^$/;
      const [storey, room] = file.split('/');
      const own =
        storey === 'platform' || storey === 'core' || storey === 'api' ? `${storey}/${room}/` : `${storey}/`;
      return localImports(file)
        .filter(target => !target.startsWith('..') && !target.startsWith(own) && target !== 'errors.ts')
        .filter(target => !allowed.test(target))
        .map(target => `${file} -> ${target}`);
    });
    expect(wrong).toEqual([]);
  });

  it('keeps each package at home', () => {
    const astray = files.flatMap(file =>
      importsOf(file)
        .map(packageOf)
        .filter(name => HOMES[name] !== undefined && !HOMES[name].test(file))
        .map(name => `${file} uses ${name}`),
    );
    expect(astray).toEqual([]);
  });

  it('reads the environment in config/index.ts alone', () => {
    expect(
      files.filter(
        file =>
          file !== 'config/index.ts' && readFileSync(path.join('src', file), 'utf8').includes('process.env'),
      ),
    ).toEqual([]);
  });

  it('has at most 15 files a folder', () => {
    const folders = Map.groupBy(files, file => path.dirname(file));
    expect([...folders].filter(([, own]) => own.length > MAX_FILES).map(([folder]) => folder)).toEqual([]);
  });

  it('has no cycle of imports, not of types either', () => {
    const loaded = new Map(files.map(file => [file, staticImports(file)]));
    const done = new Set<string>();
    const cycles: string[] = [];
    const follow = (file: string, way: readonly string[]) => {
      if (way.includes(file)) cycles.push([...way.slice(way.indexOf(file)), file].join(' -> '));
      if (way.includes(file) || done.has(file)) return;
      for (const target of loaded.get(file) ?? []) follow(target, [...way, file]);
      done.add(file);
    };
    for (const file of files) follow(file, []);
    expect(cycles).toEqual([]);
  });

  it('has a platform that knows nothing of what it carries', () => {
    const names = files
      .filter(file => file.startsWith('platform/'))
      .flatMap(file => PRODUCT_WORDS.exec(readFileSync(path.join('src', file), 'utf8'))?.[0] ?? []);
    expect(names).toEqual([]);
  });
});
