import { readFile } from 'node:fs/promises';
import { stripTypeScriptTypes } from 'node:module';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { browserMissing, newVisitor, startBrowser } from '../support/browser.ts';
import { startMail } from '../support/identity.ts';

/** A page that searches, and calls a tool with tokens that it has to renew first. */
const page = (settings: object) => `<!doctype html>
<script type="importmap">{ "imports": { "openapi-fetch": "/app/node_modules/openapi-fetch/dist/index.mjs" } }</script>
<script type="module">
  import { isSwitchboardError, Switchboard, UserTokens } from '/app/client/src/index.ts';
  const { apiKey, tokens } = ${JSON.stringify(settings)};
  const switchboard = new Switchboard({ url: '/', apiKey });
  let saved;
  const store = { save: async set => void (saved = set) };
  const { servers } = await switchboard.search({ query: 'mail' });
  const call = { server_id: 'mail', name: 'echo', arguments: { message: 'ebb' } };
  const { content } = await switchboard.as(new UserTokens(switchboard, tokens, store)).callTool(call);
  const error = await switchboard.listTools({ server_id: 'nobody' }).catch(thrown => thrown);
  window.seen = {
    found: servers[0].id,
    text: content[0].text,
    isRenewed: saved.refresh_token !== tokens.refresh_token,
    isTyped: isSwitchboardError(error, 'server_not_found'),
  };
</script>`;

/** Returns a file of this repository as a browser can run it. */
async function moduleOf(file: string): Promise<string> {
  const source = await readFile(file, 'utf8');
  return file.endsWith('.ts') ? stripTypeScriptTypes(source) : source;
}

describe.skipIf(browserMissing !== undefined)(`in Chromium ${browserMissing ?? ''}`, () => {
  it("works on a page of Switchboard's own origin, without a build", async () => {
    await using sb = await startMail('pglite');
    const { sessionId: _, ...tokens } = await sb.connect('ada');
    const settings = { apiKey: sb.key, tokens: { ...tokens, expires_at: new Date().toISOString() } };
    const browser = await startBrowser();
    await using stack = new AsyncDisposableStack();
    stack.defer(() => browser.close());
    const visitor = stack.use(await newVisitor(browser));
    await visitor.context.route(`${sb.url}/app/**`, async route => {
      const file = path.normalize(new URL(route.request().url()).pathname.slice('/app/'.length));
      if (file === 'page') await route.fulfill({ contentType: 'text/html', body: page(settings) });
      else await route.fulfill({ contentType: 'text/javascript', body: await moduleOf(file) });
    });
    const tab = await visitor.context.newPage();
    await tab.goto(`${sb.url}/app/page`);
    const seen = await tab.waitForFunction(() => (globalThis as { seen?: unknown }).seen);
    expect(await seen.jsonValue()).toEqual({
      found: 'mail',
      text: 'Echo: ebb',
      isRenewed: true,
      isTyped: true,
    });
    expect(visitor.strayed).toEqual([]);
  });
});
