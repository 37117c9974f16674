import { createHash } from 'node:crypto';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { open } from '../support/raw-http.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

let sb: RunningSwitchboard;
beforeAll(async () => void (sb = await startTestSwitchboard()));
afterAll(() => sb[Symbol.asyncDispose]());

/** The bytes as they were sent. */
async function raw(path: string, headers: Record<string, string>) {
  const answer = await open(sb.url, path, { headers });
  const chunks: Buffer[] = [];
  for await (const chunk of answer) chunks.push(chunk as Buffer);
  return { status: answer.statusCode, headers: answer.headers, body: Buffer.concat(chunks) };
}

const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(`${sb.url}${path}`, { headers, redirect: 'manual' });

/** Follows the imports of the page and its modules, as a browser does, and returns what was fetched. */
async function everything(): Promise<Map<string, string>> {
  const seen = new Map<string, string>();
  const html = await (await get('/console/')).text();
  const map = JSON.parse(/<script type="importmap">(.*?)<\/script>/.exec(html)?.[1] ?? '{}') as {
    imports: Record<string, string>;
  };
  const follow = async (url: string): Promise<void> => {
    if (seen.has(url)) return;
    const response = await fetch(url);
    expect(response.status, url).toBe(200);
    const text = await response.text();
    seen.set(url, text);
    if (!url.endsWith('.js')) return;
    for (const [, name = ''] of text.matchAll(/(?:from|import)\s*\(?\s*["']([^"'\s]+)["']/g)) {
      const target = map.imports[name];
      await follow(
        target === undefined ? new URL(name, url).href : new URL(target, `${sb.url}/console/`).href,
      );
    }
  };
  for (const [, target = ''] of html.matchAll(/(?:src|href)="([^"#]+)"/g))
    await follow(new URL(target, `${sb.url}/console/`).href);
  return seen;
}

describe('the files of the console', () => {
  it('are one page for everybody, which needs no key and holds no secret [console.files]', async () => {
    const moved = await get('/console');
    expect(moved.status).toBe(308);
    expect(moved.headers.get('location')).toBe('console/');
    const page = await get('/console/');
    expect(page.status).toBe(200);
    expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8');
    expect(page.headers.getSetCookie()).toEqual([]);
  });

  it('run no script but their own, and no inline one but the import map [console.files]', async () => {
    const page = await get('/console/');
    const policy = page.headers.get('content-security-policy') ?? '';
    const html = await page.text();
    const inline = [...html.matchAll(/<script(?![^>]*\ssrc=)[^>]*>([\s\S]*?)<\/script>/g)].map(
      ([, text]) => text,
    );
    expect(inline).toHaveLength(1);
    const hash = createHash('sha256')
      .update(inline[0] ?? '')
      .digest('base64');
    expect(policy).toContain(`script-src 'self' 'sha256-${hash}';`);
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toMatch(/unsafe|\*|https?:/);
    expect(html).not.toMatch(/\sstyle=|\son\w+=/);
  });

  it('import only each other, and all of it is less than 150 KB compressed [console.files]', async () => {
    const files = await everything();
    const urls = [...files.keys()];
    expect(urls.length).toBeGreaterThan(7);
    expect(urls.filter(url => !url.startsWith(`${sb.url}/console/`))).toEqual([]);
    let bytes = 0;
    for (const url of urls.filter(one => one.endsWith('.js'))) {
      const { headers, body } = await raw(new URL(url).pathname, { 'accept-encoding': 'gzip, br' });
      expect(headers['content-encoding'], url).toBe('br');
      bytes += body.length;
    }
    expect(bytes).toBeLessThan(150_000);
  });

  it('are sent compressed and revalidated, and are the same in every encoding [console.files]', async () => {
    const path = '/console/lib/preact.js';
    const plain = await (await get(path, { 'accept-encoding': 'identity' })).text();
    expect(plain).not.toContain('sourceMappingURL');
    const etags = new Set<string | null>();
    for (const [encoding, decode] of [
      ['br', brotliDecompressSync],
      ['gzip', gunzipSync],
    ] as const) {
      const { headers, body } = await raw(path, { 'accept-encoding': encoding });
      expect(headers).toMatchObject({
        'content-encoding': encoding,
        'content-type': 'text/javascript; charset=utf-8',
        'cache-control': 'no-cache',
        vary: 'Accept-Encoding',
        'x-content-type-options': 'nosniff',
      });
      expect(decode(body).toString()).toBe(plain);
      etags.add(String(headers['etag']));
      const again = await raw(path, {
        'accept-encoding': encoding,
        'if-none-match': String(headers['etag']),
      });
      expect(again).toMatchObject({ status: 304 });
      expect(again.body).toHaveLength(0);
    }
    expect(etags.size).toBe(2);
  });

  it.each([
    '/console/none.js',
    '/console/../files.ts',
    '/console/..%2ffiles.ts',
    '/console/lib/',
    '/console/%00',
  ])('%s is not there [console.files]', async path => {
    expect((await get(path)).status).toBe(404);
  });
});
