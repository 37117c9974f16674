import { readFile } from 'node:fs/promises';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorCodes } from '../../src/errors.ts';
import { fetchRaw } from '../support/raw-http.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

let sb: RunningSwitchboard;
beforeAll(async () => void (sb = await startTestSwitchboard()));
afterAll(() => sb[Symbol.asyncDispose]());

describe('open pages', () => {
  it('/healthz and /readyz need no key', async () => {
    expect(await sb.get('/healthz', { 'x-api-key': '' })).toMatchObject({
      status: 200,
      json: { status: 'ok' },
    });
    expect(await sb.get('/readyz', { 'x-api-key': '' })).toMatchObject({
      status: 200,
      json: { status: 'ready', degraded: [] },
    });
  });

  it('/openapi.json describes every endpoint of the contract and refers only to what it holds', async () => {
    const { json } = await sb.get('/openapi.json', { 'x-api-key': '' });
    expect(json.openapi).toBe('3.1.0');
    expect(Object.keys(json.paths).sort()).toEqual([
      '/v0.1/servers',
      '/v0.1/servers/{server_name}/versions',
      '/v0.1/servers/{server_name}/versions/{version}',
      '/v1/admin/audit',
      '/v1/admin/call',
      '/v1/admin/catalogue',
      '/v1/admin/catalogue/import',
      '/v1/admin/catalogue/probe',
      '/v1/admin/catalogue/reindex',
      '/v1/admin/catalogue/sync',
      '/v1/admin/catalogue/{id}',
      '/v1/admin/catalogue/{id}/activate',
      '/v1/admin/catalogue/{id}/deactivate',
      '/v1/admin/catalogue/{id}/tools',
      '/v1/admin/connections',
      '/v1/admin/connections/all',
      '/v1/admin/connections/form',
      '/v1/admin/connections/revoke',
      '/v1/admin/connections/session',
      '/v1/admin/connections/{id}/revoke',
      '/v1/admin/keys',
      '/v1/admin/keys/{id}',
      '/v1/admin/keys/{id}/revoke',
      '/v1/admin/keys/{id}/rotate',
      '/v1/admin/overview',
      '/v1/admin/search',
      '/v1/admin/setup',
      '/v1/admin/setup/oauth-clients',
      '/v1/admin/setup/oauth-clients/remove',
      '/v1/admin/tenants',
      '/v1/admin/tenants/{id}',
      '/v1/admin/tenants/{id}/webhook',
      '/v1/admin/tenants/{id}/webhook/remove',
      '/v1/admin/tenants/{id}/webhook/rotate',
      '/v1/admin/tenants/{id}/webhook/test',
      '/v1/admin/usage',
      '/v1/admin/users/holdings',
      '/v1/admin/users/revoke',
      '/v1/identity/connections',
      '/v1/identity/manage',
      '/v1/identity/refresh',
      '/v1/identity/revoke',
      '/v1/identity/sessions',
      '/v1/identity/sessions/{session_id}',
      '/v1/identity/sessions/{session_id}/confirm',
      '/v1/identity/token',
      '/v1/mcp/call',
      '/v1/mcp/tools/call',
      '/v1/mcp/tools/list',
      '/v1/results/{handle}',
      '/v1/search',
      '/v1/search/feedback',
    ]);
    expect(Object.keys(json.paths['/v1/identity/connections'])).toEqual(['get', 'put']);
    expect(Object.keys(json.paths['/v1/admin/connections'])).toEqual(['get', 'put']);
    expect(
      json.paths['/v1/search'].post.requestBody.content['application/json'].schema.properties.query,
    ).toMatchObject({
      type: 'string',
      minLength: 1,
      maxLength: 1000,
    });
    expect(Object.keys(json.paths['/v1/mcp/tools/call'].post.responses)).toEqual(
      expect.arrayContaining(['200', '400', '401', '404', '410', '429', '502']),
    );
    expect(json.paths['/v1/mcp/tools/call'].post.responses['400'].description).toContain('`invalid_params`');
    for (const [, name] of JSON.stringify(json).matchAll(/#\/components\/schemas\/(\w+)/g)) {
      expect(json.components.schemas).toHaveProperty(name ?? '');
    }
  });

  it('/openapi.json says what every field of a search means', async () => {
    const { json } = await sb.get('/openapi.json', { 'x-api-key': '' });
    const { requestBody, responses } = json.paths['/v1/search'].post;
    const silent: string[] = [];
    const visit = (schema: any, at: string): void => {
      for (const [name, field] of Object.entries<any>(schema.properties ?? {})) {
        if ((field.description ?? '').length < 10) silent.push(`${at}${name}`);
        visit(field, `${at}${name}.`);
      }
      if (schema.items) visit(schema.items, at);
    };
    visit(requestBody.content['application/json'].schema, 'request: ');
    const answer = responses['200'].content['application/json'].schema;
    visit(answer, 'answer: ');
    expect(silent).toEqual([]);
    const server = answer.properties.servers.items.properties;
    for (const score of [server.final_score, ...Object.values<any>(server.scores.properties)])
      expect(score).toMatchObject({ type: 'number', minimum: 0, maximum: 1 });
  });

  it('/openapi.json says where an identity token may come along, and what a refusal carries', async () => {
    const { json } = await sb.get('/openapi.json', { 'x-api-key': '' });
    expect(json.components.securitySchemes.identityToken).toMatchObject({
      type: 'http',
      scheme: 'bearer',
      bearerFormat: 'JWT',
    });
    for (const [path, methods] of Object.entries<any>(json.paths)) {
      const both = /^\/v1\/(mcp|results)\//.test(path)
        ? [{ apiKey: [] }, { apiKey: [], identityToken: [] }]
        : undefined;
      for (const operation of Object.values<any>(methods)) expect(operation.security, path).toEqual(both);
    }
    const { properties, required } = json.components.schemas.Problem;
    const ofSignIn = ['provider', 'reason', 'missing_scopes', 'session_id', 'auth_url', 'expires_at'];
    const members = [...ofSignIn, 'error', 'retryable', 'required_capabilities'];
    expect(Object.keys(properties)).toEqual(expect.arrayContaining(members));
    for (const member of members) expect(required).not.toContain(member);
  });

  it('/openapi.json names what a path, a token and an answer in lines can add [errors.documented]', async () => {
    const { json } = await sb.get('/openapi.json', { 'x-api-key': '' });
    const long: string[] = [];
    for (const [path, methods] of Object.entries<any>(json.paths)) {
      for (const { operationId, responses } of Object.values<any>(methods)) {
        expect(responses['401'].description, path).toContain('`identity_token_invalid`');
        expect(responses['401'].headers, path).toHaveProperty('WWW-Authenticate');
        if (path.includes('{')) expect(responses['400']?.description, path).toContain('`invalid_request`');
        if (responses['200'].content['application/x-ndjson']) long.push(operationId);
      }
    }
    expect(long).toEqual(['importCatalogue', 'syncCatalogue', 'reindexCatalogue', 'probeCatalogue']);
  });

  it('/openapi.json gives every operation an id of its own: clients make functions of them', async () => {
    const { json } = await sb.get('/openapi.json', { 'x-api-key': '' });
    const ids = Object.values<any>(json.paths).flatMap(methods =>
      Object.values<any>(methods).map(({ operationId }) => operationId),
    );
    expect(ids.length).toBeGreaterThan(40);
    expect(ids.filter((id, at) => ids.indexOf(id) !== at)).toEqual([]);
  });

  it('/openapi.json has only patterns that other languages have as well', async () => {
    const { text } = await sb.get('/openapi.json', { 'x-api-key': '' });
    const patterns = [...text.matchAll(/"pattern":("(?:[^"\\]|\\.)*")/g)].map(([, json = '']) =>
      JSON.parse(json),
    );
    expect(patterns.length).toBeGreaterThan(10);
    for (const pattern of patterns) {
      // Classes of Unicode are unknown to some, \\d and \\w mean more to others, and RE2 has no look-around.
      expect(pattern).not.toMatch(/\\[dDwWsSbBpPk]|\(\?/);
      for (const flags of ['', 'u']) expect(() => new RegExp(pattern, flags)).not.toThrow();
    }
    expect(text).toContain('"format":"date-time"');
  });

  it('/openapi.json links operations with what they lead to', async () => {
    const { json } = await sb.get('/openapi.json', { 'x-api-key': '' });
    const operations = Object.values<any>(json.paths).flatMap(methods => Object.values<any>(methods));
    const byId = new Map(operations.map(one => [one.operationId, one]));
    const bodyOf = (one: any) => one?.requestBody?.content['application/json'].schema;
    /** What a runtime expression stands for, by the schemas. */
    const source = (from: any, expression: string): any => {
      const [, place, pointer = ''] =
        /^\$(response\.body|request\.body|request\.\w+)[#.](.*)$/.exec(expression) ?? [];
      if (place !== 'response.body' && place !== 'request.body')
        return from.parameters.find((one: any) => `$${place}.${one.name}` === expression);
      const whole =
        place === 'request.body' ? bodyOf(from) : from.responses['200'].content['application/json'].schema;
      return pointer
        .split('/')
        .slice(1)
        .reduce((schema, part) => (/^\d+$/.test(part) ? schema?.items : schema?.properties[part]), whole);
    };
    const links = operations.flatMap(from =>
      Object.values<any>(from.responses['200'].links ?? {}).map(link => ({ from, link })),
    );
    for (const { from, link } of links) {
      const to = byId.get(link.operationId);
      const at = `${from.operationId} -> ${link.operationId}`;
      const names = [
        ...(to?.parameters ?? []).map((one: any) => one.name),
        ...Object.keys(bodyOf(to)?.properties ?? {}),
      ];
      for (const [name, value] of Object.entries<string>({ ...link.parameters, ...link.requestBody })) {
        expect(names, at).toContain(name);
        if (value.startsWith('$')) expect(source(from, value), `${at}: ${value}`).toBeDefined();
      }
    }
    expect(links.map(({ from, link }) => `${from.operationId} ${link.operationId}`)).toEqual(
      expect.arrayContaining([
        'search callTool',
        'search searchFeedback',
        'createSession getSession',
        'issueToken refreshToken',
      ]),
    );
  });

  it('docs/api.md names every error code', async () => {
    const page = await readFile(new URL('../../docs/api.md', import.meta.url), 'utf8');
    expect(errorCodes.filter(code => !page.includes(`\`${code}\``))).toEqual([]);
  });
});

describe('errors', () => {
  it.each([
    ['GET', '/.well-known/oauth-protected-resource', 404],
    ['GET', '/.well-known/oauth-authorization-server', 404],
    ['GET', '/.well-known/oauth-protected-resource/mcp', 404],
    ['GET', '/.well-known/oauth-protected-resource/mcp/filler', 404],
    ['GET', '/.well-known/oauth-authorization-server/mcp', 404],
    ['GET', '/.well-known/openid-configuration', 404],
    ['GET', '/.well-known/openid-configuration/mcp', 404],
    ['POST', '/register', 404],
    ['GET', '/v1/search', 405],
    ['DELETE', '/v1/mcp/call', 405],
    ['POST', '/v1/nothing', 404],
    ['GET', '/v1/%E0%A4%A', 404],
    ['GET', '/v1/identity/sessions/%E0%A4%A', 400],
  ])('%s %s is %i, as problem details [errors.no-html] [errors.detail]', async (method, path, status) => {
    const answer = await fetch(sb.url + path, { method, headers: { 'x-api-key': sb.key } });
    const text = await answer.text();
    expect(answer.status).toBe(status);
    expect(answer.headers.get('content-type')).toBe('application/problem+json; charset=utf-8');
    expect(typeof JSON.parse(text).detail).toBe('string');
    expect(text).not.toMatch(/<html|node_modules|\bat \w+ \(/);
  });

  it.each(['http://127.0.0.1', 'http://localhost:1'])(
    'a target that names the host (%s) is taken like its path',
    async authority => {
      const headers = { 'content-type': 'application/json', 'x-api-key': sb.key };
      const post = (path: string, body: object, more = headers) =>
        fetchRaw(sb.url, authority + path, { method: 'POST', headers: more, body: JSON.stringify(body) });
      expect((await post('/v1/search?x=1', { query: 'x' })).status).toBe(200);
      expect((await post('/v1/search', { query: 'x' }, { ...headers, 'x-api-key': '' })).status).toBe(401);
      const ping = { jsonrpc: '2.0', id: 1, method: 'ping' };
      expect((await post('/mcp', ping)).status).toBe(200);
      expect((await post('/mcp/none', ping)).json.error.data.reason).toBe('server_not_found');
    },
  );

  it.each([
    '/x/',
    '/v1/x/',
    '/v0.1/servers/',
    '/v0.1/servers/a/versions/',
    '/v1/identity/sessions/',
    '/v1/identity/sessions/%',
  ])('%s… is quoted from its start alone [errors.short]', async path => {
    const { status, text } = await sb.get(path + 'x'.repeat(6_000));
    expect(status).toBeGreaterThanOrEqual(400);
    expect(text.length).toBeLessThan(1_500);
  });

  it.each<[method: string, path: string, allowed: string]>([
    ['GET', '/v1/search', 'POST'],
    ['POST', '/v1/results/res_x', 'GET, HEAD'],
    ['HEAD', '/v1/identity/sessions/ses_x', 'GET'],
    ['DELETE', '/v1/identity/connections', 'GET, HEAD, PUT'],
    ['PUT', '/v0.1/servers', 'GET, HEAD'],
    // A server may be called import.
    ['DELETE', '/v1/admin/catalogue/import', 'POST, GET, HEAD, PUT'],
    ['POST', '/', 'GET, HEAD'],
    ['POST', '/docs', 'GET, HEAD'],
    ['POST', '/assets/copy.js', 'GET, HEAD'],
    ['POST', '/openapi.json', 'GET, HEAD'],
    ['POST', '/healthz', 'GET, HEAD'],
    ['POST', '/readyz', 'GET, HEAD'],
    ['POST', '/metrics', 'GET, HEAD'],
    ['OPTIONS', '/.well-known/jwks.json', 'GET, HEAD'],
  ])('%s %s is 405 and allows %s', async (method, path, allowed) => {
    const answer = await fetch(sb.url + path, { method, headers: { 'x-api-key': sb.key } });
    expect(answer.status).toBe(405);
    expect(answer.headers.get('allow')).toBe(allowed);
  });

  it('no header tells what the server is made of', async () => {
    expect((await sb.get('/healthz')).headers.get('x-powered-by')).toBeNull();
  });
});

describe('a web page that reached us by DNS rebinding', () => {
  it.each([
    [{ host: 'evil.example' }, 'Host'],
    [{ host: '127.0.0.1', origin: 'https://evil.example' }, 'Origin'],
    [{ host: '127.0.0.1', origin: 'null' }, 'Origin'],
  ])('%j is refused', async (headers, name) => {
    const { statusCode, body } = await request(`${sb.url}/v1/search`, {
      method: 'POST',
      headers: { ...headers, 'x-api-key': sb.key },
    });
    expect(statusCode).toBe(403);
    expect(await body.json()).toMatchObject({
      code: 'host_not_allowed',
      detail: expect.stringContaining(`The ${name} header`),
    });
  });

  it('a local page may call', async () => {
    const { status } = await sb.post('/v1/search', { query: 'x' }, { origin: 'http://localhost:5173' });
    expect(status).toBe(200);
  });
});

describe('logs', () => {
  it('have one line a request, with its id and key id, and no secret', async () => {
    const { json } = await sb.admin.request('POST', '/keys', { name: 'canary', scopes: ['search'] });
    const answer = await sb.post(
      '/v1/search?token=canary-in-url',
      { query: 'canary words' },
      { 'x-api-key': json.key },
    );
    const id = answer.headers.get('x-request-id') ?? '';
    const line =
      sb
        .logged()
        .split('\n')
        .find(one => one.includes(id) && one.includes('"request"')) ?? '{}';
    expect(JSON.parse(line)).toMatchObject({
      method: 'POST',
      path: '/v1/search',
      status: 200,
      keyId: json.id,
      tenantId: 'local',
    });
    for (const secret of [json.key.slice(-38), sb.key, 'canary-in-url', 'canary words'])
      expect(sb.logged()).not.toContain(secret);
  });
});
