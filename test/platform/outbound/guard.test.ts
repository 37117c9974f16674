import { describe, expect, it } from 'vitest';
import { Guard } from '../../../src/platform/outbound/guard.ts';
import { startHostile } from '../../support/upstreams/hostile.ts';
import { caller, failure, startProxy } from '../../core/proxy/harness.ts';

/** URLs that are refused before any look-up. */
const HOSTILE_URLS = [
  'http://example.com/mcp',
  'ftp://example.com/mcp',
  'file:///etc/passwd',
  'data:text/plain,x',
  'javascript:alert(1)',
  'ws://example.com/',
  'https://user:pass@example.com/',
  'https://user@example.com/',
  'https://127.0.0.1/',
  'https://127.1/',
  'https://2130706433/',
  'https://0x7f000001/',
  'https://0x7f.1/',
  'https://0177.0.0.1/',
  'https://127.0.0.1./',
  'https://①②⑦.⓪.⓪.①/',
  'https://0/',
  'https://0.0.0.0/',
  'https://10.0.0.1/',
  'https://172.16.0.1/',
  'https://192.168.1.1/',
  'https://100.64.0.1/',
  'https://100.100.100.200/',
  'https://169.254.169.254/latest/meta-data',
  'https://2852039166/',
  'https://168.63.129.16/',
  'https://192.0.0.192/',
  'https://198.18.0.1/',
  'https://203.0.113.1/',
  'https://224.0.0.1/',
  'https://240.0.0.1/',
  'https://255.255.255.255/',
  'https://[::1]/',
  'https://[::]/',
  'https://[::ffff:127.0.0.1]/',
  'https://[::ffff:a9fe:a9fe]/',
  'https://[::127.0.0.1]/',
  'https://[::ffff:0:127.0.0.1]/',
  'https://[fe80::1]/',
  'https://[fc00::1]/',
  'https://[fd00:ec2::254]/',
  'https://[fd20:ce::254]/',
  'https://[fec0::1]/',
  'https://[ff02::1]/',
  'https://[64:ff9b::7f00:1]/',
  'https://[64:ff9b::a9fe:a9fe]/',
  'https://[64:ff9b:1::1]/',
  'https://[2002:7f00:1::]/',
  'https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/',
  'https://[2001:db8::1]/',
  'https://[100::1]/',
  'https://[4000::1]/',
  // More ways to write what is above.
  'HTTPS://127.0.0.1/',
  'https:127.0.0.1/',
  'https:\\\\127.0.0.1/',
  'https://%31%32%37.0.0.1/',
  'https://１２７。０。０。１/',
  'https://2130706433./',
  'https://017700000001/',
  'https://0300.0250.1.1/',
  'https://0xa9.0xfe.0xa9.0xfe/',
  'https://169.16689662/',
  'https://example.com@169.254.169.254/',
  'https://[0:0:0:0:0:ffff:7f00:1]/',
  'https://[64:ff9b::169.254.169.254]/',
  'https://[64:ff9b:1:fffe::7f00:1]/',
  'https://[::ffff:0:8.8.8.8]/',
  // Ranges that no server of the public network has.
  'https://0.1.2.3/',
  'https://100.127.255.255/',
  'https://169.254.170.2/',
  'https://192.0.0.170/',
  'https://192.0.2.1/',
  'https://192.31.196.1/',
  'https://192.52.193.1/',
  'https://192.88.99.1/',
  'https://192.168.255.255/',
  'https://198.19.255.255/',
  'https://198.51.100.1/',
  'https://239.255.255.250/',
  'https://[febf::1]/',
  'https://[ff0e::1]/',
  'https://[2001:2::1]/',
  'https://[2001:10::1]/',
  'https://[2001:20::1]/',
  'https://[2001:4:112::1]/',
  'https://[2002:808:808::1]/',
  'https://[2620:4f:8000::1]/',
  'https://[3fff::1]/',
  'https://[5f00::1]/',
  // Not the web.
  'about:blank',
  'blob:https://example.com/1',
  'gopher://example.com:70/_x',
  'wss://example.com/',
];

/** Answers of a name server that are refused: one bad address is enough. */
const HOSTILE_ANSWERS = [
  ['127.0.0.1'],
  ['93.184.216.34', '127.0.0.1'],
  ['93.184.216.34', '::1'],
  ['169.254.169.254'],
  ['10.1.2.3'],
  ['::ffff:10.1.2.3'],
  ['0.0.0.0'],
  ['fe80::1%eth0'],
  ['64:ff9b::10.0.0.1'],
  ['2002:a00:1::'],
  ['fd12:3456::1'],
  ['not an address'],
  [''],
  ['127.1'],
  ['1.1.1.1', '1.0.0.1', '192.168.0.1'],
  ['2606:4700::1111', '::ffff:7f00:1'],
  ['100.100.100.200'],
  ['168.63.129.16'],
  ['fd00:ec2::254'],
  ['fd20:ce::254'],
  ['::'],
  ['::127.0.0.1'],
  ['255.255.255.255'],
  ['224.0.0.251'],
  ['ff02::fb'],
  ['fec0::1'],
  ['2001:0:4136:e378:8000:63bf:3fff:fdd2'],
  ['2001:db8::1'],
  ['64:ff9b:1::7f00:1'],
];

const guardFor = (addresses: string[], allowPrivateNetwork = false) =>
  new Guard({
    allowPrivateNetwork,
    connectTimeoutMs: 1000,
    resolve: (_name, done) => {
      done(
        null,
        addresses.map(address => ({ address, family: address.includes(':') ? 6 : 4 })),
      );
    },
  });

/** What the connection's name look-up comes back with. */
const lookUp = (guard: Guard, all: boolean) =>
  new Promise<unknown>((resolve, reject) => {
    guard.lookup('name.test', { all }, (error, address) => (error ? reject(error) : resolve(address)));
  });

describe('the outbound guard', () => {
  it.each(HOSTILE_URLS)('refuses %s', url => {
    expect(() => guardFor([]).check(new URL(url))).toThrow(
      expect.objectContaining({ code: 'upstream_blocked' }),
    );
  });

  it.each(HOSTILE_ANSWERS)('refuses a name that resolves to %s', async (...addresses) => {
    const guard = guardFor(addresses.filter(address => typeof address === 'string'));
    await expect(lookUp(guard, true)).rejects.toMatchObject({ code: 'upstream_blocked' });
    await expect(lookUp(guard, false)).rejects.toMatchObject({ code: 'upstream_blocked' });
  });

  it.each(['localhost', 'localhost.', 'sub.localhost'])(
    'refuses to connect to %s by the system’s own resolver',
    async hostname => {
      const guard = new Guard({ allowPrivateNetwork: false, connectTimeoutMs: 1_000 });
      const connected = new Promise((resolve, reject) => {
        guard.connect({ hostname, host: hostname, protocol: 'https:', port: '1' }, (error, socket) =>
          error ? reject(error) : resolve(socket),
        );
      });
      // Where a resolver does not know the name, that is as good.
      await expect(connected).rejects.toMatchObject({
        code: expect.stringMatching(/^(upstream_blocked|ENOTFOUND|EAI_AGAIN)$/),
      });
    },
  );

  it.each([
    'https://example.com/',
    'https://1.1.1.1/',
    'https://[2606:4700::1111]/',
    'https://[64:ff9b::808:808]/',
  ])('allows %s', url => guardFor([]).check(new URL(url)));

  it('hands the checked addresses to the connection, whichever way it asks', async () => {
    const guard = guardFor(['93.184.216.34', '2606:4700::1111']);
    expect(await lookUp(guard, false)).toBe('93.184.216.34');
    expect(await lookUp(guard, true)).toHaveLength(2);
  });

  it('a name without addresses does not resolve', async () => {
    await expect(lookUp(guardFor([]), true)).rejects.toMatchObject({ code: 'ENOTFOUND' });
  });

  describe('with the private-network flag', () => {
    it.each([
      'http://127.0.0.1:1/',
      'http://10.0.0.1/',
      'http://[::1]/',
      'https://[fd12::1]/',
      'http://[::ffff:10.0.0.1]/',
    ])('allows %s', url => guardFor([], true).check(new URL(url)));

    it.each([
      'http://169.254.169.254/',
      'http://[::ffff:169.254.169.254]/',
      'http://[fe80::1]/',
      'http://[fd00:ec2::254]/',
      'http://168.63.129.16/',
      'http://100.100.100.200/',
      'http://0.0.0.0/',
      'http://[::]/',
      'http://224.0.0.1/',
      'http://255.255.255.255/',
      'http://[64:ff9b::7f00:1]/',
      'ftp://127.0.0.1/',
      'http://user@127.0.0.1/',
    ])('still refuses %s', url => {
      expect(() => guardFor([], true).check(new URL(url))).toThrow(
        expect.objectContaining({ code: 'upstream_blocked' }),
      );
    });
  });
});

describe('a proxied call', () => {
  it('never connects to a name that leads inside, and does not say where it leads', async () => {
    await using upstream = await startHostile();
    let connections = 0;
    upstream.server.on('connection', () => connections++);
    await using harness = startProxy(`https://name.test:${upstream.port}/ok`, {
      allowPrivateNetwork: false,
      resolve: (_name, done) => done(null, [{ address: '127.0.0.1', family: 4 }]),
    });
    const error = await failure(harness.tool());
    expect(error.code).toBe('upstream_blocked');
    expect(error.detail).not.toContain('127');
    expect(connections).toBe(0);
  });

  it('checks at each connection: a name that changes its mind is refused', async () => {
    await using upstream = await startHostile();
    let address = '127.0.0.1';
    await using harness = startProxy(`http://name.test:${upstream.port}/ok`, {
      resolve: (_name, done) => done(null, [{ address, family: 4 }]),
    });
    await harness.tool();
    address = '169.254.169.254';
    await upstream.cutConnections();
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_blocked' });
  });

  it('never follows a redirect to any of the hostile URLs', async () => {
    let location = '';
    await using upstream = await startHostile({
      modes: { away: call => void call.response.writeHead(308, { location }).end() },
    });
    await using harness = startProxy(upstream.url('away'));
    // A header carries ASCII only.
    const urls = HOSTILE_URLS.filter(url => URL.canParse(url) && /^[\u{20}-\u{7e}]*$/u.test(url));
    expect(urls.length).toBeGreaterThan(80);
    for (location of urls) {
      const error = await failure(harness.tool());
      expect([location, error.code]).toEqual([location, 'upstream_blocked']);
    }
    expect(upstream.inbox.count('tools/call')).toBe(urls.length);
  });

  it('without the flag, http: is refused', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'), { allowPrivateNetwork: false });
    const call = harness.proxy.call(caller(), { serverId: 's', method: 'tools/list' });
    expect(await failure(call)).toMatchObject({
      code: 'upstream_blocked',
      detail: expect.stringMatching(/not an https: URL/),
    });
    expect(upstream.inbox.all).toHaveLength(0);
  });
});
