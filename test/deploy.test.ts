import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { parse as parseToml } from 'smol-toml';
import { describe, expect, it } from 'vitest';
import { parse as parseYaml } from 'yaml';
import { commands } from '../src/cli/commands.ts';
import { readConfig } from '../src/config/index.ts';
import { Metrics } from '../src/core/metrics.ts';
import { WorkerMetrics } from '../src/platform/telemetry/metrics-workers.ts';
import { settings } from './support/settings.ts';

const text = (file: string) => readFileSync(file, 'utf8');
const json = (file: string) => JSON.parse(text(file));

/** Settings that compose.yaml passes on to the SDK of OpenTelemetry. */
const sdkSettings = ['OTEL_EXPORTER_OTLP_HEADERS', 'OTEL_RESOURCE_ATTRIBUTES', 'OTEL_SERVICE_NAME'];
/** Whether the C library reads a variable. */
const isOfMalloc = (name: string) => name.startsWith('MALLOC_');
const assignments = (file: string) =>
  Object.fromEntries(
    [...text(file).matchAll(/^([A-Z0-9_]+)=(.*)$/gm)].map(([, name, value]) => [name, value]),
  );

/** Dockerfile instructions with their lines joined, comments left out: `[['FROM', '…'], …]`. */
const instructions = text('Dockerfile')
  .replaceAll(/^#.*\n/gm, '')
  .replaceAll('\\\n', ' ')
  .split('\n')
  .filter(line => line.trim() !== '')
  .map(line => [line.split(' ', 1)[0] ?? '', line.slice(line.indexOf(' ') + 1).trim()] as const);
const all = (name: string) => instructions.filter(([one]) => one === name).map(([, rest]) => rest);
const only = (name: string) => {
  const found = all(name);
  expect(found, name).toHaveLength(1);
  return found[0] ?? '';
};
const imageEnvironment = Object.fromEntries(
  [...only('ENV').matchAll(/(\w+)=(\S+)/g)].map(([, name, value]) => [name ?? '', value ?? '']),
);

describe('package.json', () => {
  it('lets no package run a script when it is installed, also with an npm that knows no allowScripts', () => {
    const { packages } = json('package-lock.json');
    const scripted = Object.entries<{ hasInstallScript?: true; dev?: true }>(packages)
      .filter(([, { hasInstallScript }]) => hasInstallScript)
      .map(([file, { dev }]) => ({ name: file.replace(/^.*node_modules\//, ''), dev }));
    const { allowScripts, scarfSettings } = json('package.json');
    for (const { name } of scripted) expect(allowScripts, name).toHaveProperty([name], false);
    // Of what users install, only this one; its own switch turns it off for older versions of npm.
    expect(scripted.filter(({ dev }) => !dev).map(({ name }) => name)).toEqual(['@scarf/scarf']);
    expect(scarfSettings).toEqual({ enabled: false });
  });
});

describe('Dockerfile', () => {
  it('has the Node that package.json pins', () => {
    const pinned = Object.values<string>(json('package.json').optionalDependencies);
    expect(new Set([only('ARG').replace('NODE_VERSION=', '')])).toEqual(new Set(pinned));
    for (const from of all('FROM')) expect(from).toMatch(/^node:\$\{NODE_VERSION\}-slim\b/);
  });

  it('copies what is there, and what .dockerignore lets through', () => {
    const allowed = new Set(
      text('.dockerignore')
        .split('\n')
        .filter(line => line.startsWith('!'))
        .map(line => line.slice(1)),
    );
    const copied = all('COPY')
      .filter(one => !one.startsWith('--from'))
      .flatMap(one => one.split(/\s+/).slice(0, -1));
    for (const source of copied) expect(existsSync(source), source).toBe(true);
    expect(new Set(copied)).toEqual(allowed);
  });

  it('runs without root, without a shell, and as npm start does', () => {
    expect(only('USER')).toMatch(/^[1-9]\d*:[1-9]\d*$/);
    const [program, ...args] = JSON.parse(only('ENTRYPOINT')) as string[];
    const command = [program, ...args, ...(JSON.parse(only('CMD')) as string[])].join(' ');
    const malloc = Object.entries(imageEnvironment).filter(([name]) => isOfMalloc(name));
    expect(json('package.json').scripts.start).toBe(
      [...malloc.map(([name, value]) => `${name}=${value}`), 'exec', command.replace('/app/', '')].join(' '),
    );
  });

  it('sets only what the program reads, and never runs without a key for the vault', () => {
    for (const name of Object.keys(imageEnvironment)) if (!isOfMalloc(name)) expect(settings).toContain(name);
    expect(() => readConfig({ ...imageEnvironment, PUBLIC_URL: 'https://sb.test' })).toThrow(
      'SWITCHBOARD_KEKS',
    );
  });

  it.each([
    ['passes', 200, 0],
    ['fails', 503, 1],
  ])('has a health check that %s when /readyz answers %i', async (_what, status, code) => {
    const asked: (string | undefined)[] = [];
    const server = createServer((request, response) => {
      asked.push(request.url);
      response.writeHead(status).end();
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const [, script = ''] = /CMD \["node", "-e", (".*")\]$/.exec(only('HEALTHCHECK')) ?? [];
    const port = String((server.address() as AddressInfo).port);
    const child = execFile(process.execPath, ['-e', JSON.parse(script) as string], { env: { PORT: port } });
    expect((await once(child, 'exit'))[0]).toBe(code);
    expect(asked).toEqual(['/readyz']);
    server.close();
  });
});

describe('compose.yaml', () => {
  const source = text('compose.yaml');
  const compose = parseYaml(source);
  const services = Object.entries<any>(compose.services);
  const example = assignments('.env.example');

  it('takes from the environment what .env.example has, and nothing else', () => {
    const used = [...source.matchAll(/\$\{(\w+)/g)].map(([, name]) => name);
    expect(new Set(used)).toEqual(new Set(Object.keys(example)));
  });

  it('gives the program settings that it has and accepts', () => {
    const { environment } = compose.services.switchboard;
    for (const name of Object.keys(environment)) expect(settings).toContain(name);
    expect(Object.keys(environment)).toEqual(expect.arrayContaining(sdkSettings));
    const filledIn: Record<string, string> = {
      ...example,
      POSTGRES_PASSWORD: 'a'.repeat(64),
      MEILISEARCH_API_KEY: 'b'.repeat(64),
      SWITCHBOARD_KEKS: `k1:${Buffer.alloc(32, 1).toString('base64')}`,
      SWITCHBOARD_API_KEY: 'c'.repeat(64),
    };
    const given = Object.entries<string>(environment).map(([name, value]) => [
      name,
      value.replaceAll(/\$\{(\w+)[^}]*\}/g, (_all, one: string) => filledIn[one] ?? ''),
    ]);
    const config = readConfig({ ...imageEnvironment, ...Object.fromEntries(given) });
    expect(config.http.publicUrl).toBe(example['PUBLIC_URL']);
    expect(config.tracing).toBeUndefined();
    expect(config.mcp.signIn).toEqual({ external: undefined });
    expect(new URL(config.database.url ?? '').hostname).toBe('postgres');
    expect(compose.services).toHaveProperty(new URL(config.search.meilisearch?.url ?? '').hostname);
    const { POSTGRES_USER: user, POSTGRES_DB: database } = compose.services.postgres.environment;
    expect(config.database.url).toContain(`//${user}:`);
    expect(config.database.url).toMatch(new RegExp(`/${database}$`));
  });

  it.each(services)(
    '%s cannot gain privileges or write to its image, and only loopback is published',
    (_name, one) => {
      expect(one.security_opt).toContain('no-new-privileges:true');
      expect(one.read_only).toBe(true);
      for (const port of one.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:/);
      // A name without a host, so that every engine finds it where it finds its images.
      expect(one.image).toMatch(/^[a-z0-9]+(\/[a-z0-9]+)?:/);
      for (const volume of one.volumes ?? []) expect(compose.volumes).toHaveProperty(volume.split(':')[0]);
    },
  );

  it('checks the health of every service', () => {
    const withoutOne = services.filter(([, { healthcheck }]) => !healthcheck).map(([name]) => name);
    // Its check is in the Dockerfile.
    expect(withoutOne).toEqual(['switchboard']);
  });
});

describe('fly.toml', () => {
  const fly = parseToml(text('fly.toml')) as any;

  it('gives the program settings that it has and accepts', () => {
    for (const name of Object.keys(fly.env)) expect(settings).toContain(name);
    const keks = `k1:${Buffer.alloc(32, 1).toString('base64')}`;
    const { http, mcp } = readConfig({ ...imageEnvironment, ...fly.env, SWITCHBOARD_KEKS: keks });
    expect(mcp.signIn).toEqual({ external: undefined });
    expect(http.port).toBe(fly.http_service.internal_port);
    expect(http.host).toBe('0.0.0.0');
  });

  it('asks /readyz before it sends requests, and stops by SIGTERM', () => {
    expect(fly.http_service.checks.map(({ path }: any) => path)).toEqual(['/readyz']);
    expect(fly.checks.alive).toMatchObject({ path: '/healthz', port: fly.http_service.internal_port });
    expect(fly.kill_signal).toBe('SIGTERM');
  });

  it('releases by a command that there is, if by any', () => {
    const { release_command: command } = fly.deploy;
    if (command !== undefined) expect(Object.keys(commands)).toContain(command);
  });
});

/** Has each metric that comes only with its first event. */
function showAll(metrics: Metrics): void {
  metrics.watchProcess();
  metrics.http.answered('/v1/search', 'POST', 500, 1);
  metrics.calls.ended('call', 'ok', 1);
  metrics.events.rateLimited('search');
  metrics.events.refused('unauthorized');
  metrics.events.audited('key_created', 'ok');
  metrics.events.tokensAsked('session', 'ok');
  metrics.events.providerRefreshed('ok');
  metrics.events.probed('ok');
  metrics.events.webhookSent('ok');
  metrics.watch('switchboard_upstream_sessions', () => ({ busy: 0, idle: 0 }));
  metrics.watch('switchboard_upstream_circuits', () => ({ open: 0, closed: 0 }));
  metrics.watch('switchboard_upstream_slots', () => ({ busy: 0, waiting: 0 }));
  metrics.watch('switchboard_streams', () => ({ open: 0, free: 0 }));
  metrics.watch('switchboard_servers', () => ({
    ok: 0,
    needs_sign_in: 0,
    not_mcp: 0,
    unreachable: 0,
    unvisited: 0,
    inactive: 0,
  }));
  metrics.watch('switchboard_search_slots', () => ({ busy: 0, waiting: 0 }));
  metrics.watch('switchboard_database_pool', () => ({ busy: 0, idle: 0, waiting: 0 }));
}

describe('the Grafana dashboard', () => {
  const dashboard = json('grafana/switchboard.json');
  const panels: any[] = dashboard.panels;
  const expressions: string[] = panels.flatMap(({ targets = [] }) => targets.map(({ expr }: any) => expr));

  it('draws only what /metrics prints, by labels and values it has', async () => {
    const metrics = new Metrics();
    metrics.watchDegraded('index', () => false);
    for (const cacheHit of [true, false]) {
      metrics.searched({ cacheHit, latencyMs: 1, empty: false });
      metrics.queryVector(cacheHit);
    }
    metrics.embeddingRequested({ lane: 'query', outcome: 'ok', tookMs: 1 });
    metrics.embedded({ lane: 'bulk', texts: 1, tokens: 1 });
    showAll(metrics);
    const printed = await new WorkerMetrics().text(new Map([[1, metrics.json()]]), 1);
    // What Prometheus adds by itself.
    const names = new Set(['up', ...[...printed.matchAll(/^(\w+)\{?/gm)].map(([, name]) => name)]);
    const labels = new Set(['job', 'instance', ...[...printed.matchAll(/(\w+)="/g)].map(([, name]) => name)]);
    for (const expression of expressions) {
      for (const [, name, matchers = ''] of expression.matchAll(/\b([a-z_]+)\{([^}]*)\}/g)) {
        expect(names, expression).toContain(name);
        for (const [, label, operator, value] of matchers.matchAll(/(\w+)(=~|!=|=)"([^"]*)"/g)) {
          expect(labels, expression).toContain(label);
          if (operator !== '=~') expect(printed).toContain(`${label}="${value}"`);
        }
      }
      for (const [, grouped = ''] of expression.matchAll(/\bby \(([^)]*)\)/g))
        for (const label of grouped.split(', ')) expect(labels, expression).toContain(label);
    }
  });

  it('has a query in every panel, each panel once, and only variables that it defines', () => {
    expect(expressions.length).toBeGreaterThan(0);
    for (const { type, targets = [] } of panels) expect(targets.length > 0).toBe(type !== 'row');
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    const defined = dashboard.templating.list.map(({ name }: any) => name);
    const used = [...text('grafana/switchboard.json').matchAll(/\$\{?([a-z]\w*)/g)].map(([, name]) => name);
    expect(new Set(used)).toEqual(new Set(defined));
  });
});

describe('docs/operations/monitoring.md', () => {
  it('has each metric of ours in its table, names no other, and alerts on what there is', async () => {
    const metrics = new Metrics();
    showAll(metrics);
    const printed = await new WorkerMetrics().text(new Map([[1, metrics.json()]]), 1);
    const own = [...printed.matchAll(/^# TYPE (switchboard_\w+)/gm)].map(([, name]) => name);
    const page = text('docs/operations/monitoring.md');
    const [, section = ''] = /^## Metrics\n([\s\S]*?)^## Traces/m.exec(page) ?? [];
    const named = section.match(/\bswitchboard_[a-z_]+\b/g) ?? [];
    const metricOf = (name: string) => name.replace(/_seconds_(count|sum|bucket)$/, '_seconds');
    expect(new Set(named.map(metricOf))).toEqual(new Set(own));
    const [, rules = ''] = /```yaml\n(groups:[\s\S]*?)```/.exec(section) ?? [];
    const names = parseYaml(rules).groups[0].rules.map(({ alert }: any) => alert);
    expect(new Set(names).size).toBe(names.length);
  });
});
