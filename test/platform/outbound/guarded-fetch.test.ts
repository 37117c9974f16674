import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { Guard, type Resolve } from '../../../src/platform/outbound/guard.ts';
import { createGuardedFetch, whyUnreached } from '../../../src/platform/outbound/fetch.ts';
import { listen, refusedPort } from '../../support/upstreams/http.ts';

const MAX_BYTES = 64 * 1024;
const GET = { method: 'GET', headers: {} };

/** A metadata endpoint that answers as given, and a fetch that may reach it on loopback. */
async function start(answer: RequestListener, { maxMs = 30_000, address = '127.0.0.1' } = {}) {
  const seen: string[] = [];
  const server = await listen((request, response) => {
    seen.push(request.url ?? '');
    answer(request, response);
  });
  const guard = new Guard({
    allowPrivateNetwork: true,
    connectTimeoutMs: 1_000,
    resolve: (_name, done) => done(null, [{ address, family: 4 }]),
  });
  const { fetch, close } = createGuardedFetch(guard, MAX_BYTES, maxMs);
  return {
    seen,
    server,
    url: `${server.origin}/.well-known/openid-configuration`,
    fetch,
    async [Symbol.asyncDispose]() {
      await close();
      await server[Symbol.asyncDispose]();
    },
  };
}

describe('the guarded fetch', () => {
  it('brings status, headers and body', async () => {
    await using started = await start((_request, response) => {
      response.writeHead(201, { 'x-a': 'b' }).end('text');
    });
    const response = await started.fetch(started.url, GET);
    expect([response.status, response.headers.get('x-a'), await response.text()]).toEqual([201, 'b', 'text']);
  });

  it.each([
    'ftp://example.com/',
    'file:///etc/passwd',
    'http://user:pass@127.0.0.1/',
    'http://169.254.169.254/latest/meta-data/',
    'http://[fe80::1]/',
    'http://0.0.0.0/',
  ])('refuses %s', async url => {
    await using started = await start(() => {});
    await expect(started.fetch(url, GET)).rejects.toMatchObject({ code: 'upstream_blocked' });
  });

  it('never connects to a name that leads to a metadata service', async () => {
    await using started = await start(() => {}, { address: '169.254.169.254' });
    await expect(started.fetch('https://name.test/', GET)).rejects.toMatchObject({
      cause: { code: 'upstream_blocked' },
    });
  });

  it('hands a redirect back and does not follow it', async () => {
    await using started = await start((_request, response) => {
      response.writeHead(302, { location: '/elsewhere' }).end();
    });
    expect((await started.fetch(started.url, GET)).status).toBe(302);
    expect(started.seen).toEqual(['/.well-known/openid-configuration']);
  });

  it.each<[string, RequestListener]>([
    ['that is too long', (_request, response) => void response.end(Buffer.alloc(MAX_BYTES + 1))],
    [
      'that unpacks to too much',
      (_request, response) => {
        response.writeHead(200, { 'content-encoding': 'gzip' });
        response.end(gzipSync(Buffer.alloc(50 * MAX_BYTES)));
      },
    ],
  ])('reads no more than its limit of a body %s', async (_name, answer) => {
    await using started = await start(answer);
    await expect(started.fetch(started.url, GET)).rejects.toThrow(/more than 65536 bytes/);
  });

  it('closes the connection on a body without end', async () => {
    const closed = Promise.withResolvers<void>();
    await using started = await start((_request, response) => {
      response.once('close', closed.resolve);
      const more = () => {
        while (!response.destroyed && response.write(Buffer.alloc(16_384)));
      };
      response.on('drain', more);
      more();
    });
    await expect(started.fetch(started.url, GET)).rejects.toThrow(/more than 65536 bytes/);
    await closed.promise;
  });

  it('refuses too many bytes of headers', async () => {
    await using started = await start((_request, response) => {
      response.writeHead(200, { 'x-a': 'x'.repeat(20_000) }).end();
    });
    await expect(started.fetch(started.url, GET)).rejects.toMatchObject({
      cause: { code: 'UND_ERR_HEADERS_OVERFLOW' },
    });
  });

  it.each<[string, RequestListener]>([
    ['no answer', () => {}],
    ['an answer that never ends', (_request, response) => void response.write('{')],
  ])('gives up on %s when its time is up', async (_name, answer) => {
    await using started = await start(answer, { maxMs: 200 });
    await expect(started.fetch(started.url, GET)).rejects.toMatchObject({ name: 'TimeoutError' });
  });

  it('ends with its caller', async () => {
    await using started = await start((_request, response) => {
      response.write('{');
    });
    const leaving = new AbortController();
    const fetched = started.fetch(started.url, { ...GET, signal: leaving.signal });
    await once(started.server.server, 'request');
    leaving.abort(new Error('gone'));
    await expect(fetched).rejects.toThrow('gone');
  });
});

describe('why a request got no response', () => {
  const why = async (
    url: string | ((origin: string) => string),
    answer: RequestListener,
    resolve?: Resolve,
    maxMs = 60_000,
  ) => {
    await using server = await listen(answer);
    const guard = new Guard({
      allowPrivateNetwork: true,
      connectTimeoutMs: 1_000,
      ...(resolve ? { resolve } : {}),
    });
    const { fetch, close } = createGuardedFetch(guard, MAX_BYTES, maxMs);
    const error = await fetch(typeof url === 'string' ? url : url(server.origin), GET).catch(
      (thrown: unknown) => thrown,
    );
    await close();
    return whyUnreached(error);
  };
  const lost =
    (code: string): Resolve =>
    (_name, done) =>
      done(Object.assign(new Error(`getaddrinfo ${code} secret.internal`), { code }), []);
  const leadsTo =
    (address: string): Resolve =>
    (_name, done) =>
      done(null, [{ address, family: 4 }]);
  const silent: RequestListener = () => {};

  it.each<[string, Parameters<typeof why>]>([
    ['the host name does not resolve', ['https://secret.internal/', silent, lost('ENOTFOUND')]],
    ['the host name currently does not resolve', ['https://secret.internal/', silent, lost('EAI_AGAIN')]],
    ['it did not answer in time', [origin => origin, silent, undefined, 300]],
    ['the TLS handshake failed', [origin => origin.replace('http:', 'https:'), silent]],
    ['the connection broke', [origin => origin, (_request, response) => response.destroy()]],
    [
      'it leads to an address that is not public',
      ['https://secret.internal/', silent, leadsTo('169.254.169.254')],
    ],
    [
      'the request failed',
      [origin => origin, (_request, response) => response.end('x'.repeat(MAX_BYTES + 1))],
    ],
  ])('is said as: %s', async (words, asked) => {
    expect(await why(...asked)).toBe(words);
  });

  it('is said where nobody listens', async () => {
    expect(await why(`http://127.0.0.1:${await refusedPort()}/`, silent)).toBe('the connection was refused');
  });
});
