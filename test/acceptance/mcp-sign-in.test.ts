import { describe, expect, inject, it } from 'vitest';
import { linksBy, mcpSignIn } from '../support/mcp-sign-in.ts';
import {
  eventually,
  install,
  installOnPostgres,
  PUBLIC_URL,
  type Installation,
} from '../support/processes.ts';
import type { Page } from '../support/user-agent.ts';

/** Requests go to whatever `url` says at the time. */
const signInAt = (installation: Installation, url: () => string) =>
  mcpSignIn({
    publicUrl: PUBLIC_URL,
    reachedAt: address => address.replace(PUBLIC_URL, url()),
    link: user => linksBy(url(), installation.key)(user),
  });

const CALL = {
  name: 'call_remote_tool',
  arguments: { server_id: 'mail', tool_name: 'echo', arguments: { message: 'hi' } },
};

describe('the sign-in of an MCP client', () => {
  it('goes on after a kill at any step', { timeout: 300_000 }, async () => {
    await using installation = await install();
    let running = await installation.start();
    const restart = async () => {
      await running.stop('SIGKILL');
      running = await installation.start();
    };
    const on = signInAt(installation, () => running.url);
    const agent = on.browser();
    const { json } = await on.register();
    await restart();
    const attempt = on.attempt(json.client_id);
    const begun = await agent.get(attempt.url);
    await restart();
    const who = await agent.follow(begun);
    await restart();
    const signedIn = await agent.submit(who, { fields: { link: await on.link('alice') } });
    await restart();
    const consent = await agent.follow(signedIn);
    await restart();
    const allowed = await agent.submit(consent, { fields: { answer: 'allow' } });
    await restart();
    const back = await agent.get(allowed.headers.get('location') ?? '');
    await restart();
    const first = await on.redeem(attempt, new URL(back.headers.get('location') ?? ''));
    expect(first.status).toBe(200);
    await restart();
    expect((await on.rpc('/mcp', first.json.access_token)).status).toBe(200);
    const tokens = { refresh_token: first.json.refresh_token, clientId: json.client_id };
    const second = await on.refresh(tokens);
    expect(second.status).toBe(200);
    await restart();
    expect((await on.rpc('/mcp', second.json.access_token)).status).toBe(200);
  });

  it(
    'at a provider makes a user of everybody whose address is at the tenant’s domain',
    { timeout: 120_000 },
    async () => {
      await using installation = await install();
      const running = await installation.start();
      const set = (rule: string) => running.command('tenant', 'set', 'local', '--sign-in', rule);
      expect((await set('local:email@example.test')).stdout).toContain('local:email@example.test');
      const on = signInAt(installation, () => running.url);
      const consentOf = async (
        login: string,
      ): Promise<{
        agent: ReturnType<typeof on.browser>;
        page: Page;
        attempt: ReturnType<typeof on.attempt>;
      }> => {
        const agent = on.browser();
        const attempt = on.attempt((await on.register()).json.client_id);
        const who = await agent.follow(await agent.get(attempt.url));
        expect(who.html).toContain('Sign in with');
        const provider = await agent.submit(who, { fields: { provider: 'local' } });
        const callback = await agent.authorize(provider.headers.get('location') ?? '', {
          login,
          stopAt: url => url.startsWith(`${PUBLIC_URL}/`),
        });
        const page = await agent.follow(await agent.get(callback));
        return { agent, page, attempt };
      };
      const { agent, page, attempt } = await consentOf('nora');
      expect(page.html).toContain('You are signed in');
      const next = /class="button second" href="([^"]+)"/.exec(page.html)?.[1] ?? '';
      const consent = await agent.get(new URL(next, page.url).href);
      expect(consent.html).toContain('nora@example.test');
      const { json } = await on.redeem(attempt, await on.answer(agent, consent));
      const called = await on.rpc('/mcp', json.access_token, 'tools/call', CALL);
      // Acts as that user, who has to connect the account that the tool needs.
      expect(JSON.stringify(called.json)).toContain(`${PUBLIC_URL}/connect/`);

      // Another tenant lets in the same domain: who is a user already stays one, others have to say which is meant.
      await running.command('keys', 'create', '--tenant', 'other');
      await running.command('tenant', 'set', 'other', '--sign-in', 'local:email@example.test');
      expect((await consentOf('nora')).page.html).toContain('You are signed in');
      expect((await consentOf('pia')).page.html).toContain('known in several places');
      await running.command('tenant', 'set', 'other', '--sign-in', '');

      expect((await set('local:email@elsewhere.test')).code).toBe(0);
      expect((await consentOf('otto')).page.html).toContain('Nothing is kept for this account');
    },
  );
});

describe.skipIf(inject('postgresUrl') === undefined)('two processes on one Postgres', () => {
  it('take turns at one sign-in, and end it together', { timeout: 120_000 }, async () => {
    await using installation = await installOnPostgres();
    const [a, b] = [await installation.start('a'), await installation.start('b')];
    let turn = 0;
    const on = signInAt(installation, () => (turn++ % 2 === 0 ? a : b).url);
    const tokens = await on.tokens('alice');
    const at = (process: typeof a) => signInAt(installation, () => process.url);
    expect((await at(a).rpc('/mcp', tokens.access_token)).status).toBe(200);
    expect((await at(b).rpc('/mcp', tokens.access_token)).status).toBe(200);

    const agent = on.browser();
    const attempt = on.attempt((await on.register()).json.client_id);
    const back = await on.answer(agent, await on.toConsent(agent, attempt.url));
    const twice = await Promise.all([at(a).redeem(attempt, back), at(b).redeem(attempt, back)]);
    expect(twice.filter(({ status }) => status === 200).length).toBeLessThanOrEqual(1);

    await b.revoke('alice');
    const isRefused = async () => (await at(a).rpc('/mcp', tokens.access_token)).status === 401;
    await eventually('the other process refuses the token', isRefused);
    expect((await at(a).refresh(tokens)).json.error).toBe('invalid_grant');
  });
});
