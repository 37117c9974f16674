import { randomUUID } from 'node:crypto';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startClientDocuments, type ClientDocuments } from '../support/client-documents.ts';
import { PUBLIC_URL, startWithSignIn } from '../support/mcp-sign-in.ts';

const opened = new AsyncDisposableStack();
let on: Awaited<ReturnType<typeof startWithSignIn>>;
let documents: ClientDocuments;
beforeAll(async () => {
  documents = opened.use(await startClientDocuments());
  on = opened.use(await startWithSignIn({ env: { SWITCHBOARD_RATE_LIMIT: 'off' } }));
});
afterAll(() => opened.disposeAsync());

/** Signs in as the client, and returns what it was told. */
async function connect(clientId: string, redirect_uri: string, more: Record<string, string> = {}) {
  const agent = on.browser();
  const attempt = on.attempt(clientId, { redirect_uri });
  const consent = await on.toConsent(agent, attempt.url);
  const back = await on.answer(agent, consent);
  const tokens = await on.redeem(attempt, back, more);
  const listed = tokens.status === 200 ? await on.rpc('/mcp', tokens.json.access_token) : undefined;
  return { consent, back, tokens, listed: listed?.status };
}

/** Clients shaped like real ones, in how they register, authenticate and are redirected. */
describe('a client', () => {
  it('like Claude on the web: a document, a redirect to its site', async () => {
    const callback = `${documents.origin}/api/mcp/auth_callback`;
    const id = documents.publish('claude-web.json', {
      client_name: 'Claude',
      redirect_uris: [callback],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
      scope: 'openid',
    });
    const { consent, back, tokens, listed } = await connect(id, callback);
    expect(consent.html).toContain(`Published by</dt>\n    <dd><bdi>localhost:`);
    expect(consent.html).not.toContain('Go on only if');
    expect(consent.headers.get('content-security-policy')).toContain(
      `form-action 'self' ${documents.origin};`,
    );
    expect(back.href.startsWith(callback)).toBe(true);
    expect([tokens.status, listed]).toEqual([200, 200]);
    expect((await on.refresh({ clientId: id, refresh_token: tokens.json.refresh_token })).status).toBe(200);
  });

  it('like ChatGPT: a document with keys, and private_key_jwt at the token endpoint', async () => {
    const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true });
    const callback = 'https://chatgpt.example/connector_platform_oauth_redirect';
    const id = documents.publish('chatgpt.json', {
      client_name: 'ChatGPT',
      redirect_uris: [callback],
      token_endpoint_auth_method: 'private_key_jwt',
      token_endpoint_auth_signing_alg: 'ES256',
      jwks: { keys: [{ ...(await exportJWK(publicKey)), kid: 'one', alg: 'ES256', use: 'sig' }] },
    });
    const assertion = (audience: string, jti = randomUUID(), lifetime = '1m') =>
      new SignJWT({ jti })
        .setProtectedHeader({ alg: 'ES256', kid: 'one' })
        .setIssuer(id)
        .setSubject(id)
        .setAudience(audience)
        .setIssuedAt()
        .setExpirationTime(lifetime)
        .sign(privateKey);
    const proof = async (audience = `${PUBLIC_URL}/auth`, jti = randomUUID()) => ({
      client_assertion_type: 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer',
      client_assertion: await assertion(audience, jti),
    });
    const { consent, tokens, listed } = await connect(id, callback, await proof());
    // The host that publishes the document is not the one that it leads to.
    expect(consent.html).toContain('Go on only if');
    expect([tokens.status, listed]).toEqual([200, 200]);
    const again = { clientId: id, refresh_token: tokens.json.refresh_token as string };
    expect((await on.refresh(again)).json.error).toBe('invalid_client');
    expect((await on.refresh(again, await proof('https://elsewhere.example'))).json.error).toBe(
      'invalid_client',
    );
    const late = { client_assertion_type: (await proof()).client_assertion_type };
    const forYears = await assertion(`${PUBLIC_URL}/auth`, randomUUID(), '10y');
    expect((await on.refresh(again, { ...late, client_assertion: forYears })).json.error).toBe(
      'invalid_client',
    );
    const once = await proof();
    expect((await on.refresh(again, once)).status).toBe(200);
    expect((await on.refresh(again, once)).json.error).toBe('invalid_client');
  });

  it('like Cursor: it registers, and is redirected to a scheme of its own', async () => {
    const callback = 'cursor://anysphere.cursor-mcp/oauth/callback';
    const { json } = await on.register({ client_name: 'Cursor', redirect_uris: [callback] });
    const { consent, back, tokens, listed } = await connect(json.client_id, callback);
    expect(consent.html).toContain('the app that opens <bdi>cursor:</bdi>');
    expect(consent.headers.get('content-security-policy')).toContain("form-action 'self' cursor:;");
    expect(back.protocol).toBe('cursor:');
    expect([tokens.status, listed]).toEqual([200, 200]);
  });

  it('like VS Code: a document that lists device_code, redirects to its site and to loopback', async () => {
    const id = documents.publish('vscode.json', {
      client_name: 'Visual Studio Code',
      redirect_uris: ['http://127.0.0.1:33418/', 'https://vscode.example/redirect'],
      grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
      application_type: 'native',
    });
    for (const callback of ['http://127.0.0.1:45678/', 'https://vscode.example/redirect']) {
      const { tokens, listed } = await connect(id, callback);
      expect([tokens.status, listed]).toEqual([200, 200]);
    }
  });

  it.each(['localhost', '127.0.0.1'])('like Claude Code: a document, any port of %s', async host => {
    const id = documents.publish(`claude-code-${host}.json`, {
      client_name: 'Claude Code',
      redirect_uris: ['http://localhost/callback', 'http://127.0.0.1/callback'],
      token_endpoint_auth_method: 'none',
    });
    const { consent, tokens, listed } = await connect(id, `http://${host}:59876/callback`);
    expect(consent.html).toContain('an app on this computer');
    expect(consent.html).toContain('Go on only if');
    expect([tokens.status, listed]).toEqual([200, 200]);
  });

  it('with a secret proves itself with it', async () => {
    const callback = 'https://app.example/callback';
    const { json } = await on.register({
      redirect_uris: [callback],
      token_endpoint_auth_method: 'client_secret_post',
    });
    const { client_id: id, client_secret } = json;
    expect((await connect(id, callback)).tokens.json.error).toBe('invalid_client');
    expect((await connect(id, callback, { client_secret })).listed).toBe(200);
  });
});

describe('a document', () => {
  it('that changes its redirects cannot move a code that was issued before', async () => {
    const callback = 'https://first.example/callback';
    const document = { client_name: 'Changing', token_endpoint_auth_method: 'none' };
    const id = documents.publish('changing.json', { ...document, redirect_uris: [callback] });
    const agent = on.browser();
    const attempt = on.attempt(id, { redirect_uri: callback });
    const consent = await on.toConsent(agent, attempt.url);
    documents.publish('changing.json', { ...document, redirect_uris: ['https://second.example/callback'] });
    const back = await on.answer(agent, consent);
    expect(back.host).toBe('first.example');
    const moved = { ...attempt, redirectUri: 'https://second.example/callback' };
    expect((await on.redeem(moved, back)).json.error).toBe('invalid_grant');
  });

  it.each([
    ['names another client', (origin: string) => ({ client_id: `${origin}/another.json` })],
    ['has a secret', () => ({ client_secret: 'a secret' })],
    ['wants a shared secret', () => ({ token_endpoint_auth_method: 'client_secret_basic' })],
    ['redirects to plain http', () => ({ redirect_uris: ['http://app.example/'] })],
  ])('that %s is refused', async (what, change) => {
    const name = `${what.replaceAll(' ', '-')}.json`;
    const good = {
      client_name: 'Bad',
      redirect_uris: ['https://app.example/'],
      token_endpoint_auth_method: 'none',
    };
    documents.publish(name, { ...good, ...change(documents.origin) });
    const url = on.attempt(`${documents.origin}/${name}`, { redirect_uri: 'https://app.example/' }).url;
    const page = await on.browser().get(url);
    expect([page.status, page.headers.get('location')]).toEqual([400, null]);
    expect(page.html).toContain('This app cannot be connected');
    expect(documents.asked).toContain(`/${name}`);
  });

  it('inside the private network is not fetched, unless the operator allows it', async () => {
    await using strict = await startWithSignIn({ env: { SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'false' } });
    const id = documents.publish('inside.json', {
      redirect_uris: ['https://app.example/'],
      token_endpoint_auth_method: 'none',
    });
    for (const address of [
      id,
      'https://169.254.169.254/latest/meta-data',
      'https://[::1]/',
      'https://10.0.0.1/x',
    ]) {
      const page = await strict.browser().get(strict.attempt(address).url);
      expect(page.status).toBe(400);
    }
    expect(documents.asked).not.toContain('/inside.json');
  });
});
