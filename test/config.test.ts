import { describe, expect, it } from 'vitest';
import { readConfig } from '../src/config.ts';

describe('readConfig', () => {
  it('needs nothing: the defaults serve on loopback', () => {
    const config = readConfig({});
    expect(config.http).toMatchObject({
      host: '127.0.0.1',
      port: 8080,
      allowedHosts: ['localhost', '127.0.0.1', '[::1]'],
    });
    expect(config.proxy.allowPrivateNetwork).toBe(false);
    expect(config.access.rateLimits).toMatchObject({ search: { calls: 300, seconds: 60 } });
  });

  it('treats an empty variable as absent', () => {
    expect(readConfig({ PORT: '', SWITCHBOARD_API_KEY: '' })).toEqual(readConfig({}));
  });

  it.each([
    [{ PORT: 'eighty' }, /^PORT: must be a port number/],
    [{ PORT: '70000' }, /^PORT: /],
    [{ PORT: ' ' }, /^PORT: must be a port number/],
    [{ HOST: '127.evil.example' }, /set PUBLIC_URL/],
    [{ SWITCHBOARD_ALLOWED_HOSTS: ',' }, /^SWITCHBOARD_ALLOWED_HOSTS: /],
    [{ SWITCHBOARD_TRUST_PROXY: 'garbage' }, /^SWITCHBOARD_TRUST_PROXY: "garbage"/],
    [{ LOG_LEVEL: 'loud' }, /^LOG_LEVEL: must be one of trace/],
    [{ SWITCHBOARD_API_KEY: 'short' }, /^SWITCHBOARD_API_KEY: must have at least 32 characters/],
    [{ SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'yes' }, /must be true or false/],
    [{ SWITCHBOARD_RATE_LIMIT: 'search=0/60' }, /"search=0\/60" must be off or NAME=CALLS\/SECONDS/],
    [{ SWITCHBOARD_RATE_LIMIT: 'lunch=1/60' }, /"lunch=1\/60" must be/],
    [{ SWITCHBOARD_TRUST_PROXY: 'true' }, /would trust anyone/],
    [{ HOST: '0.0.0.0' }, /set PUBLIC_URL or SWITCHBOARD_ALLOWED_HOSTS/],
    [{ DATABASE_URL: 'postgres://db/x' }, /^DATABASE_URL: this version cannot use it yet/],
  ])('refuses %j in one line that names the variable', (env, message) => {
    expect(() => readConfig(env)).toThrow(message);
  });

  it('takes the names of a public address and the limits given, keeping the other defaults', () => {
    const config = readConfig({
      HOST: '0.0.0.0',
      PUBLIC_URL: 'https://mcp.example.org/',
      SWITCHBOARD_RATE_LIMIT: 'search=5/10',
    });
    expect(config.http.publicUrl).toBe('https://mcp.example.org');
    expect(config.http.allowedHosts).toContain('mcp.example.org');
    expect(config.access.rateLimits).toMatchObject({
      search: { calls: 5, seconds: 10 },
      proxy: { calls: 600, seconds: 60 },
    });
  });
});
