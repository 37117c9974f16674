import { readFile } from 'node:fs/promises';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createApp } from '../../src/api/http/app.ts';
import { readConfig } from '../../src/config/index.ts';
import type { Core } from '../../src/core/core.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { createLog } from '../../src/platform/telemetry/log.ts';
import { systemClock } from '../../src/platform/time.ts';
import { listen } from '../support/upstreams/http.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

const AS_BROWSER = { accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' };

let sb: RunningSwitchboard;
beforeAll(async () => {
  const remote_url = 'https://secret-server.example/mcp';
  sb = await startTestSwitchboard({ catalogue: [{ id: 'secret-server', remote_url }] });
});
afterAll(() => sb[Symbol.asyncDispose]());

/** Without a key: `/` is for strangers. */
const open = async (
  headers: Record<string, string> = {},
  { url, method = 'GET' }: { url?: string; method?: 'GET' | 'HEAD' } = {},
) => {
  const answer = await request(`${url ?? sb.url}/`, { method, headers });
  const text = await answer.body.text();
  const type = String(answer.headers['content-type']);
  return {
    status: answer.statusCode,
    headers: answer.headers,
    type,
    text,
    json: type.includes('json') && text !== '' ? JSON.parse(text) : undefined,
  };
};

describe('/', () => {
  it.each([
    [{}, 'json'],
    [{ accept: '*/*' }, 'json'],
    [{ accept: 'application/json' }, 'json'],
    [{ accept: 'application/json, text/html;q=0.5' }, 'json'],
    [{ accept: 'image/png' }, 'json'],
    [AS_BROWSER, 'html'],
    [{ accept: 'text/html' }, 'html'],
  ])('for %j is %s', async (headers, kind) => {
    const { status, type, headers: sent } = await open(headers);
    expect({ status, type, vary: sent['vary'] }).toEqual({
      status: 200,
      type: `${kind === 'json' ? 'application' : 'text'}/${kind}; charset=utf-8`,
      vary: 'Accept',
    });
  });

  it('says the same in JSON as on the page', async () => {
    const { json } = await open();
    const { text } = await open(AS_BROWSER);
    const { version } = JSON.parse(await readFile('package.json', 'utf8'));
    expect(json).toMatchObject({ name: 'Switchboard', version, status: 'ready', degraded: [] });
    expect(json.urls).toMatchObject({
      mcp: `${sb.url}/mcp`,
      docs: `${sb.url}/docs`,
      console: `${sb.url}/console`,
    });
    expect(text).toContain('Ready.');
    for (const name of ['mcp', 'docs', 'openapi', 'console', 'connections', 'ready'])
      expect(text).toContain(json.urls[name]);
  });

  it('tells a stranger neither servers nor keys', async () => {
    for (const { text } of [await open(), await open(AS_BROWSER)]) {
      expect(text).not.toContain('secret-server');
      expect(text).not.toContain(sb.key);
      expect(text).not.toContain(sb.dataDir);
    }
  });

  it('has the same headers for HEAD as for GET', async () => {
    for (const headers of [{}, AS_BROWSER]) {
      const [get, head] = [await open(headers), await open(headers, { method: 'HEAD' })];
      expect(head).toMatchObject({ status: 200, type: get.type, text: '' });
      expect(head.headers['content-length']).toBe(get.headers['content-length']);
    }
  });

  it.each([
    ['/', 'sha256-'],
    ['/docs', 'self'],
  ])('and %s allow no script and no style but their own', async (path, style) => {
    const policy = (await sb.get(path, AS_BROWSER)).headers.get('content-security-policy') ?? '';
    expect(policy).toContain(`default-src 'none'; script-src 'self'; style-src '${style}`);
    expect(policy).not.toContain('unsafe');
  });

  it('shows the address by which it was reached', async () => {
    const { port } = new URL(sb.url);
    const { json } = await open({ host: `localhost:${port}` });
    expect(json.urls.mcp).toBe(`http://localhost:${port}/mcp`);
    const behind = await startTestSwitchboard({ env: { SWITCHBOARD_TRUST_PROXY: '1' } });
    await using _behind = behind;
    const { text } = await open({ ...AS_BROWSER, 'x-forwarded-proto': 'https' }, { url: behind.url });
    expect(text).toContain(`${behind.url.replace('http:', 'https:')}/mcp`);
  });

  it('shows PUBLIC_URL with its path, whatever the address', async () => {
    const env = { PUBLIC_URL: 'https://sb.example/tools/' };
    await using prefixed = await startTestSwitchboard({ env });
    const { json } = await open({}, { url: prefixed.url });
    expect(json.urls.mcp).toBe('https://sb.example/tools/mcp');
    const { text } = await open(AS_BROWSER, { url: prefixed.url });
    expect(text).toContain('claude mcp add --transport http switchboard https://sb.example/tools/mcp ');
    expect(text).toContain('src="/tools/assets/copy.js"');
    expect(text).toContain('href="/tools/assets/icon.svg"');
  });

  it.each(['evil.example', '127.0.0.1/<script>', ''])('refuses or cleans the host %j', async host => {
    const { status, text } = await open({ ...AS_BROWSER, host });
    expect(text).not.toMatch(/evil|<script>/);
    if (host === 'evil.example') expect(status).toBe(403);
  });

  it('says what does not work as it should', async () => {
    const env = { MEILISEARCH_URL: 'http://127.0.0.1:9' };
    await using degraded = await startTestSwitchboard({ env });
    const { json } = await open({}, { url: degraded.url });
    expect(json.status).toBe('ready');
    expect(json.degraded).toEqual([expect.stringContaining('Meilisearch')]);
    const { text } = await open(AS_BROWSER, { url: degraded.url });
    expect(text).toContain(`<li>${json.degraded[0]}</li>`);
  });
});

describe('/, while it starts and stops', () => {
  it.each([
    ['starting', 'Starting: the catalogue is being indexed'],
    ['stopping', 'Stopping: this process'],
  ] as const)('says so: %s', async (status, said) => {
    const core = {
      identity: {},
      metrics: new Metrics(),
      readiness: () => ({ status, degraded: [] }),
    } as unknown as Core;
    const log = createLog('silent');
    const { http: config } = readConfig({});
    await using served = await listen(createApp({ core, config, log, clock: systemClock, version: '1.2.3' }));
    const { text } = await open(AS_BROWSER, { url: served.origin });
    expect(text).toContain(said);
    expect(text).not.toContain('Ready.');
    expect((await open({}, { url: served.origin })).json).toMatchObject({ status, version: '1.2.3' });
  });
});

describe('/assets', () => {
  it.each([
    ['copy.js', 'text/javascript'],
    ['reference.js', 'text/javascript'],
    ['reference.css', 'text/css'],
    ['swagger-ui.css', 'text/css'],
    ['swagger-ui-bundle.js', 'text/javascript'],
  ])('has %s as %s, to be asked for again only if it has changed', async (name, type) => {
    const { headers } = await sb.get(`/assets/${name}`, { 'x-api-key': '' });
    expect(headers.get('content-type')).toBe(`${type}; charset=utf-8`);
    expect(headers.get('cache-control')).toBe('no-cache');
    expect(headers.get('etag')).toMatch(/^"/);
  });

  it('has the icon of the pages', async () => {
    const { status, headers, text } = await sb.get('/assets/icon.svg', { 'x-api-key': '' });
    expect([status, headers.get('content-type')]).toEqual([200, 'image/svg+xml']);
    expect(text).toMatch(/^<svg /);
  });

  it.each([
    'package.json',
    'tsconfig.json',
    '..%2fpage.ts',
    '%2e%2e%2f%2e%2e%2fpackage.json',
    '__proto__',
    '%00',
  ])('has no %s', async name => {
    const { status } = await sb.get(`/assets/${name}`, { 'x-api-key': '' });
    expect(status).toBe(404);
  });
});
