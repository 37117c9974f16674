import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';

/** Who may import whom inside src (the first row that matches the importing file counts). */
const DIRECTIONS: readonly [from: RegExp, to: readonly RegExp[]][] = [
  [/^main\.ts$/, [/^cli\//, /^config\.ts$/, /^infra\//]],
  [
    /^cli\//,
    [/^cli\//, /^(switchboard|storage|maintenance)\.ts$/, /^config\.ts$/, /^infra\//, /^core\/caller\.ts$/],
  ],
  [
    /^switchboard\.ts$/,
    [/^faces\/(app|admin\/)/, /^core\//, /^infra\//, /^(config|storage|public-server)\.ts$/],
  ],
  [/^(storage|maintenance)\.ts$/, [/^core\/identity\//, /^infra\//, /^(config|storage)\.ts$/]],
  [
    /^faces\/rest\//,
    [
      /^faces\/(rest|operations)\//,
      /^faces\/[\w-]+\.ts$/,
      /^core\//,
      /^infra\//,
      /^errors\.ts$/,
      /^config\.ts$/,
    ],
  ],
  [
    /^faces\/operations\//,
    [/^faces\/operations\//, /^faces\/(health|progress)\.ts$/, /^core\//, /^errors\.ts$/],
  ],
  [/^faces\/mcp\//, [/^faces\/mcp\//, /^faces\/[\w-]+\.ts$/, /^core\//, /^infra\//, /^errors\.ts$/]],
  [/^faces\/pages\//, [/^faces\/pages\//, /^faces\/[\w-]+\.ts$/, /^core\//, /^errors\.ts$/]],
  [
    /^faces\/admin\//,
    [/^faces\/(admin|operations)\//, /^faces\/[\w-]+\.ts$/, /^core\//, /^infra\//, /^errors\.ts$/],
  ],
  [/^faces\/(web-)?app\.ts$/, [/^faces\//, /^core\//, /^infra\//, /^errors\.ts$/, /^config\.ts$/]],
  [/^faces\//, [/^faces\/[\w-]+\.ts$/, /^core\//, /^infra\//, /^errors\.ts$/, /^config\.ts$/]],
  [/^core\/core\.ts$/, [/^core\//, /^infra\/metrics\.ts$/]],
  [
    /^core\/search\//,
    [/^core\/search\//, /^core\/catalogue\//, /^core\/[\w-]+\.ts$/, /^infra\//, /^errors\.ts$/],
  ],
  [
    /^core\/proxy\//,
    [/^core\/(proxy|identity|outbound|catalogue)\//, /^core\/[\w-]+\.ts$/, /^infra\//, /^errors\.ts$/],
  ],
  [
    /^core\/identity\//,
    [
      /^core\/(identity|outbound)\//,
      /^core\/catalogue\/entry\.ts$/,
      /^core\/[\w-]+\.ts$/,
      /^infra\//,
      /^errors\.ts$/,
      /^config\.ts$/,
    ],
  ],
  [
    /^core\/registry\//,
    [/^core\/(registry|outbound|catalogue)\//, /^core\/[\w-]+\.ts$/, /^infra\//, /^errors\.ts$/],
  ],
  [
    /^core\/probing\//,
    [/^core\/(probing|proxy|outbound|catalogue)\//, /^core\/[\w-]+\.ts$/, /^infra\//, /^errors\.ts$/],
  ],
  [/^core\/results\//, [/^core\/results\//, /^core\/[\w-]+\.ts$/, /^infra\//, /^errors\.ts$/]],
  [/^core\/outbound\//, [/^core\/outbound\//, /^errors\.ts$/]],
  [/^core\/catalogue\//, [/^core\/catalogue\//, /^core\/[\w-]+\.ts$/, /^infra\//, /^errors\.ts$/]],
  [
    /^core\/access\//,
    [
      /^core\/access\//,
      /^core\/identity\/(users|audit)\.ts$/,
      /^core\/[\w-]+\.ts$/,
      /^infra\//,
      /^errors\.ts$/,
      /^config\.ts$/,
    ],
  ],
  [
    /^core\/[\w-]+\.ts$/,
    [/^core\/catalogue\/(entry|health)\.ts$/, /^core\/[\w-]+\.ts$/, /^infra\//, /^errors\.ts$/],
  ],
  [/^public-server\.ts$/, [/^config\.ts$/]],
  [/^config-error\.ts$/, []],
  [
    /^config/,
    [
      /^config-[\w-]+\.ts$/,
      /^core\/identity\/provider-settings\.ts$/,
      /^core\/registry\/registry-url\.ts$/,
      /^infra\/(log|postgres-limits|tracing|zod-issues)\.ts$/,
    ],
  ],
  [/^infra\//, [/^infra\//]],
  [/^errors\.ts$/, []],
];

/** Packages that belong to one place; every other package may be used where it is useful. */
const HOMES: Readonly<Record<string, RegExp>> = {
  express: /^faces\//,
  helmet: /^faces\/web-app\.ts$/,
  '@modelcontextprotocol/server': /^faces\/mcp\//,
  '@modelcontextprotocol/node': /^faces\/mcp\/endpoint\.ts$/,
  undici: /^(core\/(proxy|outbound|search\/openai)\/|cli\/)/,
  'ipaddr.js': /^core\/outbound\/guard\.ts$/,
  ajv: /^core\/proxy\/arguments\.ts$/,
  jose: /^core\/identity\//,
  'openid-client': /^core\/identity\/provider(-error)?\.ts$/,
  'drizzle-orm': /^(core\/|infra\/(database|postgres|migrations)\.ts$|infra\/dump\/)/,
  pg: /^infra\/(postgres|listen)\.ts$/,
  '@electric-sql/pglite': /^infra\/database\.ts$/,
  'prom-client': /^infra\/metrics(-\w+)?\.ts$/,
  pino: /^infra\/log\.ts$/,
  'rate-limiter-flexible': /^core\/access\/rate-limits\.ts$/,
  meilisearch: /^core\/search\/meilisearch\//,
  ...Object.fromEntries(
    ['api', 'core', 'exporter-trace-otlp-proto', 'resources', 'sdk-trace'].map(name => [
      `@opentelemetry/${name}`,
      /^infra\/tracing-otel\.ts$/,
    ]),
  ),
  stemmer: /^core\/search\/text\.ts$/,
};

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
      const allowed = DIRECTIONS.find(([from]) => from.test(file))?.[1] ?? [];
      return localImports(file)
        .filter(target => !target.startsWith('..') && !allowed.some(to => to.test(target)))
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

  it('reads the environment in config.ts alone', () => {
    expect(
      files.filter(
        file => file !== 'config.ts' && readFileSync(path.join('src', file), 'utf8').includes('process.env'),
      ),
    ).toEqual([]);
  });
});
