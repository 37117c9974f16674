import { generateKeyPairSync } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { rootCertificates } from 'node:tls';
import { describe, expect, it } from 'vitest';
import { ConfigError, readConfig } from '../src/config/index.ts';
import { temporaryFolder } from './support/program.ts';
import { ZODS_WORDS } from './support/zods-words.ts';

const postgres = {
  DATABASE_URL: 'postgres://db/x',
  SWITCHBOARD_KEKS: `k1:${Buffer.alloc(32, 1).toString('base64')}`,
};

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

  it('runs one worker, or one per core on Postgres where that is left to it', () => {
    const workers = (env: object) => readConfig({ ...env }).http.workers;
    expect([workers({}), workers(postgres), workers({ SWITCHBOARD_WORKERS: 'auto' })]).toEqual([1, 1, 1]);
    expect(workers({ SWITCHBOARD_WORKERS: '1' })).toBe(1);
    expect(workers({ ...postgres, SWITCHBOARD_WORKERS: '3' })).toBe(3);
    expect(workers({ ...postgres, SWITCHBOARD_WORKERS: 'auto' })).toBe(Math.min(64, availableParallelism()));
  });

  it('treats an empty variable as absent', () => {
    expect(readConfig({ PORT: '', SWITCHBOARD_API_KEY: '' })).toEqual(readConfig({}));
  });

  it('lists SWITCHBOARD_ variables that no setting reads, with the closest setting', () => {
    const env = {
      SWITCHBOARD_DATA_DIRECTORY: 'x',
      SWITCHBOARD_QUUX: 'x',
      SWITCHBOARD_PORT_8080_TCP: 'tcp://10.0.0.1:8080',
      SWITCHBOARD_READ_TOOL: 'true',
      OTHER: 'x',
    };
    expect(readConfig(env).unknownVariables).toEqual([
      { name: 'SWITCHBOARD_DATA_DIRECTORY', closest: 'SWITCHBOARD_DATA_DIR' },
      { name: 'SWITCHBOARD_QUUX', closest: undefined },
    ]);
  });

  it.each([
    [{ PORT: 'eighty' }, /^PORT: must be a port number/],
    [{ PORT: '70000' }, /^PORT: /],
    [{ PORT: ' ' }, /^PORT: must be a port number/],
    [{ HOST: '127.evil.example' }, /set PUBLIC_URL/],
    [{ SWITCHBOARD_ALLOWED_HOSTS: ',' }, /^SWITCHBOARD_ALLOWED_HOSTS: /],
    [{ SWITCHBOARD_READ_TOOL: 'yes' }, /^SWITCHBOARD_READ_TOOL: must be true or false/],
    [{ SWITCHBOARD_TRUST_PROXY: 'garbage' }, /^SWITCHBOARD_TRUST_PROXY: "garbage"/],
    [{ LOG_LEVEL: 'loud' }, /^LOG_LEVEL: must be one of trace/],
    [{ SWITCHBOARD_API_KEY: 'short' }, /^SWITCHBOARD_API_KEY: must have at least 32 characters/],
    [{ SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'yes' }, /must be true or false/],
    [{ SWITCHBOARD_RATE_LIMIT: 'search=0/60' }, /"search=0\/60" must be off or CLASS=REQUESTS\/SECONDS/],
    [{ SWITCHBOARD_RATE_LIMIT: 'lunch=1/60' }, /"lunch=1\/60" must be/],
    [{ SWITCHBOARD_TRUST_PROXY: 'true' }, /would trust anyone/],
    [{ HOST: '0.0.0.0' }, /set PUBLIC_URL or SWITCHBOARD_ALLOWED_HOSTS/],
    [{ SWITCHBOARD_WORKERS: '0' }, /^SWITCHBOARD_WORKERS: must be auto or a whole number from 1 to 64$/],
    [{ SWITCHBOARD_WORKERS: 'all' }, /^SWITCHBOARD_WORKERS: must be auto or a whole number from 1 to 64$/],
    [
      { SWITCHBOARD_WORKERS: '2' },
      /^SWITCHBOARD_WORKERS: the embedded database supports one process; set DATABASE_URL/,
    ],
    [{ DATABASE_POOL_SIZE: '5' }, /^DATABASE_POOL_SIZE: applies to Postgres only and requires DATABASE_URL/],
    [{ ...postgres, DATABASE_POOL_SIZE: '0' }, /^DATABASE_POOL_SIZE: must be a whole number from 1 to 1000$/],
    [
      { ...postgres, DATABASE_STATEMENT_TIMEOUT_MS: '15s' },
      /^DATABASE_STATEMENT_TIMEOUT_MS: must be a whole number from 0/,
    ],
    [{ DATABASE_URL: 'mysql://db/x' }, /^DATABASE_URL: must be a postgres:\/\/ or postgresql:\/\/ URL/],
    [{ MEILISEARCH_URL: 'search:7700' }, /^MEILISEARCH_URL: must be an http\(s\) URL/],
    [{ MEILISEARCH_URL: 'http://:key@search:7700' }, /^MEILISEARCH_URL: must not contain a user or password/],
    [{ MEILISEARCH_API_KEY: 'key' }, /^MEILISEARCH_API_KEY: must be set together with MEILISEARCH_URL/],
    [
      { MEILISEARCH_URL: 'http://search:7700', MEILISEARCH_API_KEY: 'a b' },
      /^MEILISEARCH_API_KEY: must be visible/,
    ],
    [{ EMBEDDING_MODEL: 'a-model' }, /^EMBEDDING_MODEL: requires OPENAI_API_KEY, or OPENAI_BASE_URL/],
    [{ OPENAI_BASE_URL: 'ftp://x' }, /^OPENAI_BASE_URL: must be an http\(s\) URL/],
    [{ OPENAI_BASE_URL: 'https://me:secret@x/v1' }, /^OPENAI_BASE_URL: must not contain a user or password/],
    [{ OPENAI_API_KEY: 'sk-two words' }, /^OPENAI_API_KEY: must be visible ASCII without spaces$/],
    [{ REDIS_URL: 'http://x' }, 'REDIS_URL: must be a redis:// or rediss:// URL'],
    [{ REDIS_URL: 'redis://:100%@x' }, 'REDIS_URL: must write a % that is not an escape as %25'],
    [{ REDIS_URL: 'redis://x/zero' }, 'REDIS_URL: must end with the host, or with / and a database number'],
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

describe('the embedding API', () => {
  it.each([
    [{}, undefined],
    [
      { OPENAI_API_KEY: 'sk-1' },
      { apiKey: 'sk-1', baseUrl: 'https://api.openai.com/v1', model: 'text-embedding-3-small' },
    ],
    [
      { OPENAI_BASE_URL: 'http://127.0.0.1:11434/v1', EMBEDDING_MODEL: 'nomic-embed-text' },
      { apiKey: undefined, baseUrl: 'http://127.0.0.1:11434/v1', model: 'nomic-embed-text' },
    ],
  ])('of %j is %j', (env, embedding) => {
    expect(readConfig(env).search.embedding).toEqual(embedding);
  });
});

const KEY = Buffer.alloc(32, 7).toString('base64');
const OTHER_KEY = Buffer.alloc(32, 9).toString('base64');

describe('SWITCHBOARD_KEKS', () => {
  it('gives the keys in their order: the first one seals', () => {
    const { keks } = readConfig({ SWITCHBOARD_KEKS: `k2:${OTHER_KEY}, k1:${KEY}` }).identity;
    expect(keks?.map(({ id }) => id)).toEqual(['k2', 'k1']);
    expect(keks?.[1]?.key).toEqual(new Uint8Array(32).fill(7));
  });

  it('is the key file of the data folder where it is not set', () => {
    expect(readConfig({}).identity.keks).toBeUndefined();
  });

  const short = Buffer.alloc(31, 7).toString('base64');
  it.each([
    ['no id', KEY, /entry 1 must be an id/],
    ['bad base64', `k1:${KEY.slice(0, -2)}!=`, /entry 1 must be/],
    ['31 bytes', `k1:${short}`, /entry 1 must be/],
    ['33 bytes', `k1:${Buffer.alloc(33, 7).toString('base64')}`, /entry 1 must be/],
    ['an id of other characters', `K 1:${KEY}`, /entry 1 must be/],
    ['an empty entry', `k1:${KEY},`, /entry 2 must be/],
    ['one id twice', `k1:${KEY},k1:${OTHER_KEY}`, /two keys have the same id/],
  ])('with %s is refused, and no part of it is shown', (_what, value, message) => {
    const error = refusal({ SWITCHBOARD_KEKS: value });
    expect(error.message).toMatch(message);
    expect(error.message).not.toMatch(ZODS_WORDS);
    for (const secret of [KEY, OTHER_KEY, short]) expect(error.message).not.toContain(secret.slice(0, 8));
  });
});

/** What is refused, as the program shows it. */
function refusal(env: Record<string, string>): ConfigError {
  try {
    readConfig(env);
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
  throw new Error('was not refused');
}

const CLIENT = { client_id: 'an-id', client_secret: 'a-client-secret' };
const ISSUER = 'https://id.example.com';
const providersOf = (providers: object, env: Record<string, string> = {}) =>
  readConfig({ SWITCHBOARD_PROVIDERS: JSON.stringify(providers), ...env }).identity.providers;

describe('SWITCHBOARD_PROVIDERS', () => {
  it('is taken as JSON', () => {
    expect(providersOf({ acme: { issuer: ISSUER, ...CLIENT, scopes: ['mail'] } }).get('acme')).toMatchObject({
      title: 'acme',
      issuer: ISSUER,
      client: { id: 'an-id', secret: 'a-client-secret' },
      scopes: ['openid', 'email', 'mail'],
      allowedOrigins: [],
    });
  });

  it('is taken as the path of a JSON file', async () => {
    await using folder = temporaryFolder();
    const file = path.join(folder.path, 'providers.json');
    await writeFile(file, JSON.stringify({ acme: { issuer: ISSUER, ...CLIENT } }));
    expect(readConfig({ SWITCHBOARD_PROVIDERS: file }).identity.providers.has('acme')).toBe(true);
    await writeFile(file, 'a-client-secret');
    const { message } = refusal({ SWITCHBOARD_PROVIDERS: file });
    expect(message).toBe('SWITCHBOARD_PROVIDERS: is not valid JSON');
  });

  it('is merged over the built-in Google, whose client may come from variables of its own', () => {
    const google = { GOOGLE_CLIENT_ID: 'g-id', GOOGLE_CLIENT_SECRET: 'g-secret' };
    const provider = providersOf({ google: { allowed_origins: ['https://mcp.example.com'] } }, google).get(
      'google',
    );
    expect(provider).toMatchObject({
      title: 'Google',
      issuer: 'https://accounts.google.com',
      client: { id: 'g-id', secret: 'g-secret' },
      allowedOrigins: ['https://mcp.example.com'],
      authParams: { access_type: 'offline' },
    });
    expect(readConfig({}).identity.providers.get('google')?.client).toBeUndefined();
  });

  it('takes plain http for an issuer on loopback, with the private-network flag', () => {
    const acme = { issuer: 'http://127.0.0.1:9000', ...CLIENT };
    expect(providersOf({ acme }, { SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true' }).has('acme')).toBe(true);
  });

  it.each([
    ['broken JSON', '{"acme":', /^SWITCHBOARD_PROVIDERS: is not valid JSON$/],
    ['a file that is not there', '/no/such/file', /path of a readable JSON file \(ENOENT\)/],
    [
      'an unknown field',
      { issuer: ISSUER, ...CLIENT, client_sekret: 'x' },
      /acme: unknown field "client_sekret" \(the fields are issuer, /,
    ],
    ['no object', 7, /^SWITCHBOARD_PROVIDERS: acme: must be a JSON object, not a number$/],
    ['scopes of another type', { issuer: ISSUER, ...CLIENT, scopes: 'x' }, /acme\.scopes: must be an array/],
    ['a scope of another type', { ...CLIENT, scopes: [7] }, /acme\.scopes\[0\]: must be a string/],
    ['auth_params of another type', { ...CLIENT, auth_params: { a: 1 } }, /auth_params\.a: must be a string/],
    [
      'a bad name',
      '{"A B":{}}',
      /SWITCHBOARD_PROVIDERS: A B: the name must have 1 to 64 characters from a-z/,
    ],
    ['a name for no URL', { issuer: 'id.example.com', ...CLIENT }, /acme\.issuer: must be an http\(s\) URL/],
    [
      'an http issuer',
      { issuer: 'http://127.0.0.1:9000', ...CLIENT },
      /acme: http:\/\/127\.0\.0\.1:9000 must be https/,
    ],
    [
      'an http token endpoint',
      { authorization_endpoint: ISSUER, token_endpoint: 'http://id.example.com/t', ...CLIENT },
      /must be https/,
    ],
    [
      'auth_params of ours',
      { issuer: ISSUER, ...CLIENT, auth_params: { state: 'x' } },
      /auth_params must not set/,
    ],
    [
      'auth_params against PKCE',
      { issuer: ISSUER, ...CLIENT, auth_params: { code_challenge_method: 'plain' } },
      /auth_params must not set/,
    ],
    [
      'no client_secret',
      { issuer: ISSUER, client_id: 'an-id' },
      /acme: requires both client_id and client_secret/,
    ],
    ['no client', { issuer: ISSUER }, /acme: requires client_id and client_secret/],
    [
      'neither issuer nor endpoints',
      CLIENT,
      /acme: requires issuer, or authorization_endpoint and token_endpoint/,
    ],
    [
      'an origin with a path',
      { issuer: ISSUER, ...CLIENT, allowed_origins: ['https://a.example/mcp'] },
      /must be an origin/,
    ],
  ])('with %s is refused, and no secret is shown', (_what, value, message) => {
    const text = typeof value === 'string' ? value : JSON.stringify({ acme: value });
    const error = refusal({ SWITCHBOARD_PROVIDERS: text });
    expect(error.message).toMatch(message);
    expect(error.message).not.toContain('a-client-secret');
  });

  it('refuses plain http elsewhere than on loopback even with the flag', () => {
    const acme = { issuer: 'http://id.example.com', ...CLIENT };
    const env = {
      SWITCHBOARD_PROVIDERS: JSON.stringify({ acme }),
      SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
    };
    expect(refusal(env).message).toMatch(/must be https/);
  });

  it('is refused with one of the two Google variables alone', () => {
    expect(refusal({ GOOGLE_CLIENT_ID: 'x' }).message).toMatch(
      /must be set together with GOOGLE_CLIENT_SECRET/,
    );
  });
});

describe('in production', () => {
  const keks = { SWITCHBOARD_KEKS: `k1:${KEY}` };
  const google = { GOOGLE_CLIENT_ID: 'g-id', GOOGLE_CLIENT_SECRET: 'g-secret' };
  const PRODUCTION = [
    [{ NODE_ENV: 'production' }, 'NODE_ENV is production'],
    [{ DATABASE_URL: 'postgres://db/x' }, 'DATABASE_URL is set'],
  ] as const;

  it.each(PRODUCTION)('100: the vault`s key must be given (%j)', (env, why) => {
    expect(refusal({ ...env }).message).toMatch(new RegExp(`^SWITCHBOARD_KEKS: must be set when ${why}`));
    expect(readConfig({ ...env, ...keks }).identity.keks).toHaveLength(1);
  });

  it.each(PRODUCTION)('a provider needs PUBLIC_URL (%j)', (env, why) => {
    const withProvider = { ...env, ...keks, ...google };
    expect(refusal(withProvider).message).toMatch(
      new RegExp(`^PUBLIC_URL: must be set when ${why} and .* google is`),
    );
    expect(refusal({ ...withProvider, PUBLIC_URL: 'http://sb.example.com' }).message).toMatch(
      /^PUBLIC_URL: must be https/,
    );
    for (const PUBLIC_URL of ['https://sb.example.com', 'http://127.0.0.1:8080'])
      expect(readConfig({ ...withProvider, PUBLIC_URL }).http.publicUrl).toBe(PUBLIC_URL);
  });
});

describe('the reuse of refresh tokens', () => {
  it('counts as a race within two seconds, and ends the family after that, by default', () => {
    expect(readConfig({}).identity).toMatchObject({ refreshRaceMs: 2000, reuseAction: 'family' });
  });

  it('can be set', () => {
    const env = { SWITCHBOARD_REFRESH_RACE_MS: '0', SWITCHBOARD_REFRESH_REUSE_ACTION: 'user' };
    expect(readConfig(env).identity).toMatchObject({ refreshRaceMs: 0, reuseAction: 'user' });
  });

  it.each([
    [
      { SWITCHBOARD_REFRESH_RACE_MS: '-1' },
      /^SWITCHBOARD_REFRESH_RACE_MS: must be milliseconds from 0 to 60000/,
    ],
    [{ SWITCHBOARD_REFRESH_RACE_MS: '60001' }, /^SWITCHBOARD_REFRESH_RACE_MS: /],
    [{ SWITCHBOARD_REFRESH_RACE_MS: '2s' }, /^SWITCHBOARD_REFRESH_RACE_MS: /],
    [
      { SWITCHBOARD_REFRESH_REUSE_ACTION: 'tenant' },
      /^SWITCHBOARD_REFRESH_REUSE_ACTION: must be family or user/,
    ],
  ])('refuses %j', (env, message) => {
    expect(refusal(env as Record<string, string>).message).toMatch(message);
  });
});

describe('the limits of a Postgres', () => {
  it('have documented defaults and can be set', () => {
    expect(readConfig(postgres).database.limits).toEqual({
      poolSize: 10,
      connectTimeoutMs: 5_000,
      statementTimeoutMs: 15_000,
      idleInTransactionTimeoutMs: 60_000,
    });
    const set = readConfig({
      ...postgres,
      DATABASE_POOL_SIZE: '3',
      DATABASE_CONNECT_TIMEOUT_MS: '1000',
      DATABASE_STATEMENT_TIMEOUT_MS: '0',
      DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS: '2000',
    });
    expect(set.database.limits).toEqual({
      poolSize: 3,
      connectTimeoutMs: 1_000,
      statementTimeoutMs: 0,
      idleInTransactionTimeoutMs: 2_000,
    });
  });
});

describe('registries', () => {
  it('are none by default, and reading ours needs a key', () => {
    expect(readConfig({}).registry).toEqual({
      sources: [],
      keys: new Map(),
      everyMs: 3_600_000,
      maxShrinkPercent: 20,
      probeEveryMs: 0,
      isPublic: false,
    });
  });

  it('go by their address, however it was written', () => {
    const { registry } = readConfig({
      SWITCHBOARD_REGISTRIES: 'https://a.example/, https://b.example/v0.1/servers,https://a.example',
      SWITCHBOARD_REGISTRY_KEYS: '{"https://b.example/":"secret"}',
      SWITCHBOARD_SYNC_EVERY: '5',
      SWITCHBOARD_SYNC_MAX_SHRINK: '0',
      SWITCHBOARD_PROBE_EVERY: '24',
      SWITCHBOARD_REGISTRY_ACCESS: 'public',
    });
    expect(registry).toEqual({
      sources: ['https://a.example', 'https://b.example'],
      keys: new Map([['https://b.example', 'secret']]),
      everyMs: 300_000,
      maxShrinkPercent: 0,
      probeEveryMs: 86_400_000,
      isPublic: true,
    });
  });

  it.each([
    [{ SWITCHBOARD_REGISTRIES: 'a.example' }, /^SWITCHBOARD_REGISTRIES: an address must be an http\(s\) URL/],
    [{ SWITCHBOARD_REGISTRIES: 'https://a.example,' }, /^SWITCHBOARD_REGISTRIES: /],
    [{ SWITCHBOARD_REGISTRIES: 'https://u:p@a.example' }, /must not contain a user or password/],
    [{ SWITCHBOARD_REGISTRY_KEYS: '{broken' }, /^SWITCHBOARD_REGISTRY_KEYS: must be a JSON object/],
    [{ SWITCHBOARD_REGISTRY_KEYS: '{"https://a.example":"two words"}' }, /^SWITCHBOARD_REGISTRY_KEYS: must/],
    [{ SWITCHBOARD_SYNC_EVERY: '4' }, /^SWITCHBOARD_SYNC_EVERY: must be minutes from 5 to 10080/],
    [
      { SWITCHBOARD_SYNC_MAX_SHRINK: '101' },
      /^SWITCHBOARD_SYNC_MAX_SHRINK: must be a percentage from 0 to 100/,
    ],
    [{ SWITCHBOARD_PROBE_EVERY: '721' }, /^SWITCHBOARD_PROBE_EVERY: must be hours from 0 to 720/],
    [{ SWITCHBOARD_REGISTRY_ACCESS: 'open' }, /^SWITCHBOARD_REGISTRY_ACCESS: must be key or public/],
  ])('refuses %j', (env, message) => {
    const { message: text } = refusal(env);
    expect(text).toMatch(message);
    expect(text).not.toMatch(/two words|u:p/);
  });
});

describe('tracing', () => {
  const collector = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' };

  it.each([
    {},
    { OTEL_EXPORTER_OTLP_ENDPOINT: '' },
    { OTEL_SERVICE_NAME: 'x', OTEL_TRACES_EXPORTER: 'otlp' },
    { ...collector, OTEL_SDK_DISABLED: 'TRUE' },
    { ...collector, OTEL_TRACES_EXPORTER: 'none' },
    // Meant for others.
    { OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc', OTEL_TRACES_SAMPLER: 'xray', OTEL_BSP_SCHEDULE_DELAY: 'x' },
  ])('is off with %j', env => {
    expect(readConfig(env).tracing).toBeUndefined();
  });

  it('is on where a collector is named, with the defaults of the specification', () => {
    const all = { parentBased: true, ratio: 1 };
    expect(readConfig(collector).tracing?.sampler).toEqual(all);
    const traces = { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://collector.example/v1/traces' };
    expect(readConfig(traces).tracing?.sampler).toEqual(all);
    expect(readConfig({ ...collector, OTEL_SDK_DISABLED: 'no' }).tracing).toBeDefined();
  });

  it.each([
    ['always_on', undefined, { parentBased: false, ratio: 1 }],
    ['always_off', '0.5', { parentBased: false, ratio: 0 }],
    ['traceidratio', '0.25', { parentBased: false, ratio: 0.25 }],
    ['parentbased_traceidratio', '.1', { parentBased: true, ratio: 0.1 }],
    ['parentbased_traceidratio', undefined, { parentBased: true, ratio: 1 }],
    ['parentbased_always_off', undefined, { parentBased: true, ratio: 0 }],
  ])('takes the sampler %s %s', (name, share, sampler) => {
    const env = { ...collector, OTEL_TRACES_SAMPLER: name, OTEL_TRACES_SAMPLER_ARG: share };
    expect(readConfig(env).tracing?.sampler).toEqual(sampler);
  });

  it('takes the limits of batches, and prefers files for traces to those for all signals', async () => {
    await using folder = temporaryFolder();
    const [all, own] = [path.join(folder.path, 'all.pem'), path.join(folder.path, 'own.pem')];
    const [allText = '', ownText] = rootCertificates;
    await writeFile(all, allText);
    await writeFile(own, ownText ?? '');
    const key = path.join(folder.path, 'key.pem');
    const { privateKey } = generateKeyPairSync('ed25519');
    const keyText = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
    await writeFile(key, keyText);
    const { tracing } = readConfig({
      ...collector,
      OTEL_BSP_SCHEDULE_DELAY: '100',
      OTEL_BSP_EXPORT_TIMEOUT: '200',
      OTEL_BSP_MAX_QUEUE_SIZE: '30',
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '20',
      OTEL_EXPORTER_OTLP_CERTIFICATE: all,
      OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: own,
      OTEL_EXPORTER_OTLP_CLIENT_KEY: key,
    });
    expect(tracing?.batch).toEqual({
      scheduledDelayMillis: 100,
      exportTimeoutMillis: 200,
      maxQueueSize: 30,
      maxExportBatchSize: 20,
    });
    expect(tracing?.tls).toEqual({ ca: ownText, cert: undefined, key: keyText });
  });

  it.each([
    [
      { OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4318' },
      /^OTEL_EXPORTER_OTLP_ENDPOINT: must be an http\(s\) URL/,
    ],
    [{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'x' }, /^OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: must be/],
    [{ OTEL_TRACES_EXPORTER: 'zipkin' }, /^OTEL_TRACES_EXPORTER: "zipkin" is not supported/],
    [
      { OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' },
      /^OTEL_EXPORTER_OTLP_PROTOCOL: only http\/protobuf is supported/,
    ],
    [
      { OTEL_TRACES_SAMPLER: 'sometimes' },
      /^OTEL_TRACES_SAMPLER: must be one of always_on, parentbased_always_on/,
    ],
    [
      { OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '2' },
      /^OTEL_TRACES_SAMPLER_ARG: must be a number/,
    ],
    [{ OTEL_BSP_SCHEDULE_DELAY: 'soon' }, /^OTEL_BSP_SCHEDULE_DELAY: must be a whole number/],
    [{ OTEL_BSP_MAX_QUEUE_SIZE: '100' }, /^OTEL_BSP_MAX_EXPORT_BATCH_SIZE: must not be larger/],
    [
      { OTEL_EXPORTER_OTLP_CERTIFICATE: '/nowhere.pem' },
      /^OTEL_EXPORTER_OTLP_CERTIFICATE: must be the path.*ENOENT/,
    ],
    [
      { OTEL_EXPORTER_OTLP_CERTIFICATE: 'package.json' },
      /CERTIFICATE.*must be certificates and their key in PEM/,
    ],
    [
      { OTEL_EXPORTER_OTLP_CLIENT_KEY: 'package.json' },
      /CLIENT_KEY: must be certificates and their key in PEM/,
    ],
  ])('refuses %j', (env, message) => {
    expect(refusal({ ...collector, ...env }).message).toMatch(message);
  });
});
