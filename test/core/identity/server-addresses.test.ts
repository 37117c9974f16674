import { sql } from 'drizzle-orm';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { rows } from '../../../src/platform/database/database.ts';
import { startIdentity, type IdentityUnderTest, type TokenSet } from '../../support/identity.ts';
import { startGuarded, type GuardedServer } from '../../support/upstreams/authorised.ts';
import { UserAgent } from '../../support/user-agent.ts';

const KEY = 'key+of/alice=0123456789';
const ENCODED = encodeURIComponent(KEY);

const tenants = new Set<string>();

/** Answers 404 with what it was asked for, unless the address has the right values. */
const notFound = ({ url = '' }: IncomingMessage, _message: unknown, outgoing: ServerResponse) => {
  const [, tenant = '', key] = /^\/mcp\/([^/?]*)\?key=(.*)$/.exec(url) ?? [];
  if (tenants.has(tenant) && key === ENCODED) return false;
  outgoing.writeHead(404).end(`There is nothing at ${url}, ${decodeURIComponent(url)}`);
  return true;
};

describe.each(['modern', 'legacy'] as const)('a %s server with variables in its address', era => {
  let upstream: GuardedServer;
  let sb: IdentityUnderTest;
  let users = 0;
  let user: string;
  let tokens: TokenSet;

  beforeAll(async () => {
    upstream = await startGuarded(era, notFound);
    sb = await startIdentity({
      catalogue: [
        {
          id: 'crm',
          name: 'Customer Files',
          remote_url: `${upstream.url}/{tenant}?key={key}`,
          auth: {
            kind: 'credentials',
            variables: {
              tenant: { description: 'As in your address there.', secret: false },
              key: { description: 'From your account page.' },
            },
          },
        },
      ],
      env: { SWITCHBOARD_REGISTRY_ACCESS: 'public' },
    });
  });
  afterAll(async () => {
    await sb[Symbol.asyncDispose]();
    await upstream[Symbol.asyncDispose]();
  });
  beforeEach(async () => {
    tenants.clear();
    tenants.add('acme').add('former');
    user = `user-${++users}`;
    tokens = await sb.connect(user);
    upstream.inbox.all.length = 0;
  });

  const values = { tenant: 'acme', key: KEY };
  const echo = (headers: Record<string, string> = {}) =>
    sb.post(
      '/v1/mcp/tools/call',
      { server_id: 'crm', name: 'echo', arguments: { message: 'hello' } },
      headers,
    );
  const put = (given: object) =>
    sb.put('/v1/identity/connections', { user_id: user, server_id: 'crm', values: given });

  it('is not called without values; the page of the link asks for them, and the call then works', async () => {
    const refused = await echo(sb.as(tokens));
    expect(refused).toMatchObject({
      status: 403,
      json: { code: 'connection_required', kind: 'credentials' },
    });
    expect(upstream.inbox.all).toEqual([]);
    const agent = new UserAgent();
    const page = await agent.get(refused.json.auth_url as string);
    expect(page.html).toContain('As in your address there.');
    expect(page.html).not.toContain('another header');
    const wrong = await agent.submit(page, {
      fields: { 'value.tenant': 'acme', 'value.key': 'wrong-key-0123' },
    });
    expect(wrong).toMatchObject({ status: 400, html: expect.stringContaining('refused') });
    expect(wrong.html).not.toContain('wrong-key-0123');
    const done = await agent.follow(
      await agent.submit(wrong, { fields: { 'value.tenant': 'acme', 'value.key': KEY } }),
    );
    expect(done.html).toContain('Customer Files');
    expect((await echo(sb.as(tokens))).json.content).toEqual([{ type: 'text', text: 'Echo: hello' }]);
  });

  it('carries them on /mcp/{server_id}, and in no header', async () => {
    expect(await put(values)).toMatchObject({ status: 200, json: { problem: null } });
    const message =
      era === 'modern'
        ? { method: 'tools/list', params: { _meta: META } }
        : { method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo } };
    const passed = await sb.post(
      '/mcp/crm',
      { jsonrpc: '2.0', id: 1, ...message },
      {
        ...sb.as(tokens),
        accept: 'application/json, text/event-stream',
        ...(era === 'modern' ? { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/list' } : {}),
      },
    );
    expect(passed.status, passed.text).toBe(200);
    for (const { path, headers } of upstream.inbox.all) {
      expect(path).toContain(ENCODED);
      expect(headers.authorization).toBeUndefined();
    }
  });

  it('is shared by the operator in the same way', async () => {
    expect((await echo()).status).toBe(403);
    const made = await sb.admin.request('PUT', '/connections', { server_id: 'crm', values });
    expect(made).toMatchObject({ status: 200, json: { problem: null } });
    expect((await echo()).status).toBe(200);
    await sb.admin.request('POST', '/connections/revoke', { server_id: 'crm' });
    expect((await echo()).status).toBe(403);
  });

  it('refuses wrong ones with nothing of them in the answer', async () => {
    const wrong = { tenant: 'acme', key: 'wrong/key+of=bob-0123' };
    const refused = await put(wrong);
    expect(refused).toMatchObject({ status: 400, json: { code: 'credentials_rejected' } });
    expect(refused.text).not.toMatch(/wrong[/%]/);
    expect((await echo(sb.as(tokens))).status).toBe(403);
    for (const tenant of ['a/b', '..', '%2e%2e%2fadmin'])
      expect(await put({ tenant, key: KEY })).toMatchObject({
        status: 400,
        json: { code: 'invalid_request', detail: expect.stringMatching(/^values\.tenant: must not contain/) },
      });
  });

  it('is not held to be down for everybody where one user has values that are valid no longer', async () => {
    const former = sb.as(tokens);
    expect((await put({ ...values, tenant: 'former' })).status).toBe(200);
    user = `user-${++users}`;
    const current = sb.as(await sb.connect(user));
    expect((await put(values)).status).toBe(200);
    tenants.delete('former');
    for (let times = 0; times < 12; times++)
      expect(await echo(former)).toMatchObject({ status: 502, json: { code: 'upstream_http_error' } });
    expect((await echo(current)).status).toBe(200);
  });

  it('is not visited by health checks, and shows its template everywhere', async () => {
    const probed = await sb.admin.request('POST', '/catalogue/probe', { ids: ['crm'] });
    expect(probed.json).toMatchObject({ visited: 1, no_verdict: 1, failing: [] });
    expect(upstream.inbox.all).toEqual([]);
    const template = `${upstream.url}/{tenant}?key={key}`;
    expect((await sb.admin.request('GET', '/catalogue/crm')).json).toMatchObject({ remote_url: template });
    const { json } = await sb.get('/v0.1/servers?search=crm');
    expect(json.servers[0].server.remotes).toEqual([
      {
        type: 'streamable-http',
        url: template,
        variables: {
          tenant: { description: 'As in your address there.', isRequired: true, isSecret: false },
          key: { description: 'From your account page.', isRequired: true, isSecret: true },
        },
      },
    ]);
  });

  it('leaves its key in no row of the database, no log line, no metric and no answer', async () => {
    const answers = [await put(values), await echo(sb.as(tokens))];
    answers.push(await sb.post('/v1/mcp/tools/list', { server_id: 'crm' }, sb.as(tokens)));
    answers.push(await sb.post('/v1/search', { query: 'customer files' }, sb.as(tokens)));
    answers.push(await sb.get(`/v1/identity/connections?user_id=${user}`), await sb.get('/metrics'));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200, 200]);
    const tables = await rows<{ name: string }>(
      sb.db,
      sql`select table_name as name from information_schema.tables where table_schema = 'public'`,
    );
    const dumps = tables.map(async ({ name }) =>
      JSON.stringify(await rows(sb.db, sql`select t::text as line from ${sql.identifier(name)} t`)),
    );
    for (const shown of [sb.logged(), ...answers.map(({ text }) => text), ...(await Promise.all(dumps))])
      for (const form of [KEY, ENCODED]) expect(shown).not.toContain(form);
    expect(upstream.inbox.all.some(({ path }) => path.includes(ENCODED))).toBe(true);
  });
});

const clientInfo = { name: 'test', version: '1' };
const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': clientInfo,
  'io.modelcontextprotocol/clientCapabilities': {},
};
