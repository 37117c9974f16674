import { randomBytes } from 'node:crypto';
import { chmod, readFile, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { eq, sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { connectionBinding } from '../../../src/core/identity/connections/stored-tokens.ts';
import { connections } from '../../../src/core/identity/schema.ts';
import { Vault } from '../../../src/core/identity/vault/vault.ts';
import { users } from '../../../src/core/access/schema.ts';
import { rows } from '../../../src/platform/database/database.ts';
import { openPostgres } from '../../../src/platform/database/postgres.ts';
import { DATABASES, startMail, type MailUnderTest } from '../../support/identity.ts';
import { createDatabase } from '../../support/postgres.ts';
import { eventually, install, type Process } from '../../support/processes.ts';
import { makeDataDir } from '../../support/data-dir.ts';
import { run, serve, temporaryFolder } from '../../support/program.ts';
import type { AuthorisedServer } from '../../support/upstreams/authorised.ts';

const newKek = () => randomBytes(32).toString('base64');

describe.each(DATABASES)('98: on $name, a ciphertext in another row', ({ kind, skipped }) => {
  describe.skipIf(skipped)('', () => {
    let upstream: AuthorisedServer;
    let sb: MailUnderTest;
    let count = 0;
    beforeAll(async () => void ({ upstream } = sb = await startMail(kind)));
    afterAll(() => sb[Symbol.asyncDispose]());

    const connected = async () => sb.as(await sb.connect(`vault-${++count}`));
    const call = (headers: Record<string, string>) => sb.echo('x', headers);
    const sealedOf = async (user: string) => {
      const [row] = await sb.db
        .select({ id: connections.id, sealed: connections.sealed })
        .from(connections)
        .innerJoin(users, eq(users.id, connections.userId))
        .where(eq(users.externalId, user));
      return { id: row?.id ?? '', sealed: row?.sealed ?? '' };
    };
    const put = (id: string, sealed: string) =>
      sb.db.update(connections).set({ sealed }).where(eq(connections.id, id));

    const expectUnreadable = async (headers: Record<string, string>) => {
      const from = { requests: upstream.inbox.all.length, log: sb.logged().length };
      const { status, json } = await call(headers);
      expect([status, json.code, json.reason]).toEqual([403, 'connection_required', 'needs_reauth']);
      expect(json.auth_url).toMatch(/^http/);
      expect(upstream.inbox.all.length).toBe(from.requests);
      expect(sb.logged().slice(from.log)).toMatch(/"event":"connection_unreadable".*ALARM/);
    };

    it('98: of another user does not open, and neither user gets the other`s account', async () => {
      const alice = await connected();
      const bob = await connected();
      expect([(await call(alice)).status, (await call(bob)).status]).toEqual([200, 200]);
      const a = await sealedOf(`vault-${count - 1}`);
      const b = await sealedOf(`vault-${count}`);
      await put(a.id, b.sealed);
      await put(b.id, a.sealed);
      await expectUnreadable(alice);
      await expectUnreadable(bob);

      await put(a.id, a.sealed);
      await put(b.id, b.sealed);
      expect([(await call(alice)).status, (await call(bob)).status]).toEqual([200, 200]);
    });

    it('98: changed in one place does not open', async () => {
      const alice = await connected();
      const { id, sealed } = await sealedOf(`vault-${count}`);
      const parts = sealed.split('.');
      for (const part of parts.keys()) {
        const spoilt = parts.map((text, at) =>
          at === part ? text.slice(0, -3) + (text.at(-3) === 'A' ? 'B' : 'A') + text.slice(-2) : text,
        );
        await put(id, spoilt.join('.'));
        await expectUnreadable(alice);
      }
      await put(id, sealed);
      expect((await call(alice)).status).toBe(200);
    });

    it('98: signing in again mends it', async () => {
      const alice = await connected();
      const { id } = await sealedOf(`vault-${count}`);
      await put(id, 'k1:eyJ.a.b.c.d');
      await expectUnreadable(alice);
      await sb.connect(`vault-${count}`);
      expect((await call(alice)).status).toBe(200);
    });
  });
});

const NO_POSTGRES = inject('postgresUrl') === undefined;
const ROWS = 4000;

describe('sealing with a new key', () => {
  it.skipIf(NO_POSTGRES)(
    '99: goes on under load, is killed half-way, goes on where it was, and loses nothing',
    async () => {
      await using database = await createDatabase();
      const [k1, k2] = [`k1:${newKek()}`, `k2:${newKek()}`];
      const env = { SWITCHBOARD_RATE_LIMIT: 'off' };
      const start = (keks: string) =>
        install({ databaseUrl: database.url, env: { ...env, SWITCHBOARD_KEKS: keks } });

      await using before = await start(k1);
      const first = await before.start();
      const tokens = await first.connect('alice');
      await first.stop();
      const opened = await openPostgres(database.url);
      await using _opened = { [Symbol.asyncDispose]: () => opened.close() };
      const { db } = opened;
      await fill(db, await vaultOf(k1));
      const sealedBy = async (id: string) =>
        Number(
          (
            await rows<{ count: number }>(
              db,
              sql`select count(*)::int as count from connections where starts_with(sealed, ${`${id}:`})`,
            )
          )[0]?.count,
        );
      expect(await sealedBy('k1')).toBe(ROWS + 1);

      await using after = await start(`${k2},${k1}`);
      const killed = await after.start();
      await expectUnused(killed, 'k1', false);
      const load = underLoad(killed, tokens);
      const broken = killed.command('keys', 'rewrap');
      await eventually('some rows are sealed anew', async () => (await sealedBy('k2')) > 300);
      await killed.stop('SIGKILL');
      const failed = await broken;
      expect(failed.code, failed.stdout).toBe(1);
      expect(await load.stop()).toEqual([]);
      expect(load.calls()).toBeGreaterThan(0);
      const done = await sealedBy('k2');
      expect(done).toBeGreaterThan(300);
      expect(await sealedBy('k1')).toBe(ROWS + 1 - done);

      const resumed = await after.start();
      const loadAgain = underLoad(resumed, tokens);
      const finished = await resumed.command('keys', 'rewrap', '--json');
      expect(await loadAgain.stop()).toEqual([]);
      expect(finished.code, finished.stderr).toBe(0);
      const { sealed } = JSON.parse(finished.stdout);
      // Not from the beginning. (Signing keys and sessions are sealed, too.)
      expect(sealed).toBeLessThan(ROWS + 1 - done + 10);
      expect(finished.stderr).toMatch(/^1\d{3} rows re-encrypted$/m);
      expect([await sealedBy('k1'), await sealedBy('k2')]).toEqual([0, ROWS + 1]);

      const vault = await vaultOf(k2);
      const stored = await db.select().from(connections);
      const texts = await Promise.all(
        stored.map(row => vault.open(connectionBinding(row), row.sealed ?? '')),
      );
      expect(texts.filter(text => text.startsWith('token of usr_load_'))).toHaveLength(ROWS);
      for (const [at, row] of stored.entries())
        if (row.userId.startsWith('usr_load_')) expect(texts[at]).toBe(`token of ${row.userId}`);

      await expectUnused(resumed, 'k1', true);
      await resumed.stop();
      await using alone = await start(k2);
      const last = await alone.start();
      expect((await last.callTool(tokens)).json.result).toBeDefined();
    },
  );

  it('99: a key that is needed cannot be retired, nor one that seals, nor one that is not there', async () => {
    await using folder = temporaryFolder();
    const [k1, k2] = [`k1:${newKek()}`, `k2:${newKek()}`];
    const dataDir = await makeDataDir(path.join(folder.path, 'data'));
    const shared = { SWITCHBOARD_DATA_DIR: dataDir, SWITCHBOARD_CATALOGUE: SMALL };
    const envOf = (keks: string) => ({ ...shared, SWITCHBOARD_KEKS: keks });
    expect((await run(['keys', 'create'], envOf(k1))).code).toBe(0);
    const both = envOf(`${k2},${k1}`);
    const retire = async (id: string) => {
      const { code, stderr } = await run(['keys', 'retire', id], both);
      return [code, stderr];
    };
    expect(await retire('k1')).toEqual([2, expect.stringMatching(/\d rows are still encrypted with k1/)]);
    expect(await retire('k2')).toEqual([2, expect.stringMatching(/k2 is the active key/)]);
    expect(await retire('k3')).toEqual([2, expect.stringMatching(/No key with the id "k3"/)]);
    // Two signing keys, without a server, and then nothing.
    expect((await run(['keys', 'rewrap'], both)).stdout).toBe('Re-encrypted 2 rows.\n');
    expect((await run(['keys', 'rewrap'], both)).stdout).toBe('Re-encrypted 0 rows.\n');
    expect((await run(['keys', 'retire', 'k1'], both)).stdout).toMatch(/remove it from SWITCHBOARD_KEKS/);
    expect((await run(['keys', 'list'], envOf(k2))).code).toBe(0);
    expect((await run(['keys', 'list'], envOf(k1))).code).toBe(2);
  });
});

async function vaultOf(kek: string): Promise<Vault> {
  const [id = '', key = ''] = kek.split(':');
  return Vault.create([{ id, key: new Uint8Array(Buffer.from(key, 'base64')) }]);
}

/** Connections of many users, sealed as Switchboard seals them. */
async function fill(db: Awaited<ReturnType<typeof openPostgres>>['db'], vault: Vault): Promise<void> {
  const made = Array.from({ length: ROWS }, (_, at) => {
    const id = String(at).padStart(22, '0');
    return {
      id: `con_${id}`,
      userId: `usr_load_${id}`,
      tenantId: 'local',
      provider: 'local',
      resource: '',
      issuer: null,
    };
  });
  const sealed = await Promise.all(
    made.map(row => vault.seal(connectionBinding(row), `token of ${row.userId}`)),
  );
  for (let from = 0; from < ROWS; from += 500) {
    const some = made.slice(from, from + 500);
    await db
      .insert(users)
      .values(some.map(({ userId, tenantId }) => ({ id: userId, tenantId, externalId: userId })));
    await db.insert(connections).values(some.map((row, at) => connectionOf(row, sealed[from + at] ?? '')));
  }
}

const connectionOf = (
  row: { id: string; userId: string; tenantId: string; provider: string; resource: string },
  sealed: string,
) => ({
  ...row,
  subject: row.userId,
  scopes: [],
  hasRefreshToken: false,
  sealed,
});

/** Calls for a user until it is stopped; resolves with the answers that were none of the good ones. */
function underLoad(process: Process, tokens: { access_token: string }) {
  const stop = new AbortController();
  let calls = 0;
  const wrong: string[] = [];
  const running = (async () => {
    while (!stop.signal.aborted) {
      // The process is killed under it.
      const answer = await process.callTool(tokens).catch(() => undefined);
      if (answer === undefined) return;
      calls++;
      if (answer.json?.result === undefined) wrong.push(answer.text);
    }
  })();
  return {
    calls: () => calls,
    async stop() {
      stop.abort();
      await running;
      return wrong;
    },
  };
}

async function expectUnused(process: Process, keyId: string, unused: boolean): Promise<void> {
  const { code, stdout, stderr } = await process.command('keys', 'retire', keyId);
  expect([code, unused ? stdout : stderr]).toEqual(
    unused
      ? [0, expect.stringContaining('remove it from SWITCHBOARD_KEKS')]
      : [2, expect.stringContaining(`rows are still encrypted with ${keyId}`)],
  );
}

const SMALL = path.resolve('test/support/one-server.jsonl');

describe('a start', () => {
  const refusedWith = async (env: Record<string, string>) => {
    const { code, stdout, stderr } = await run([], { PORT: '0', SWITCHBOARD_CATALOGUE: SMALL, ...env });
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).not.toMatch(/\n\s+at /);
    return stderr;
  };
  const once = async (env: Record<string, string>) => {
    await using program = await serve({ SWITCHBOARD_CATALOGUE: SMALL, ...env });
    await program.stop();
  };

  it('100: with another key than the database`s is refused, and the right one still works', async () => {
    await using folder = temporaryFolder();
    const data = { SWITCHBOARD_DATA_DIR: await makeDataDir(path.join(folder.path, 'data')) };
    const [right, wrong] = [newKek(), newKek()];
    await once({ ...data, SWITCHBOARD_KEKS: `k1:${right}` });
    for (const keks of [`k1:${wrong}`, `k2:${right}`, `k2:${wrong},k1:${wrong}`]) {
      const stderr = await refusedWith({ ...data, SWITCHBOARD_KEKS: keks });
      expect(stderr).toMatch(
        /^switchboard: SWITCHBOARD_KEKS: .*"k1", which is missing or different here\. .*SWITCHBOARD_VAULT_RESET/m,
      );
      for (const secret of [right, wrong]) expect(stderr).not.toContain(secret);
    }
    await once({ ...data, SWITCHBOARD_KEKS: `k2:${wrong},k1:${right}` });
  });

  it('100: makes its own key file, for its owner alone, and refuses one that others can read', async () => {
    await using folder = temporaryFolder();
    const data = await makeDataDir(path.join(folder.path, 'data'));
    const file = path.join(data, 'vault.key');
    const env = { SWITCHBOARD_DATA_DIR: data };
    await once(env);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    const key = await readFile(file, 'utf8');
    expect(key).toMatch(/^k1:[A-Za-z0-9+/]{43}=\n$/);

    for (const mode of [0o640, 0o604]) {
      await chmod(file, mode);
      const stderr = await refusedWith(env);
      expect(stderr).toContain('vault.key can be read by others');
      expect(stderr).not.toContain(key.slice(3, 20));
    }
    await chmod(file, 0o600);
    await writeFile(file, key.slice(0, 20));
    expect(await refusedWith(env)).toContain('vault.key is damaged');
    await writeFile(file, key);
    await once(env);
    expect(await readFile(file, 'utf8')).toBe(key);
    // The file's key may be moved to the environment.
    await once({ ...env, SWITCHBOARD_KEKS: `k2:${newKek()},${key.trim()}` });
  });

  it('100: without the key file of its database is refused', async () => {
    await using folder = temporaryFolder();
    const env = { SWITCHBOARD_DATA_DIR: await makeDataDir(path.join(folder.path, 'data')) };
    await once(env);
    const file = path.join(env.SWITCHBOARD_DATA_DIR, 'vault.key');
    const key = await readFile(file, 'utf8');
    await writeFile(file, `k1:${newKek()}\n`);
    expect(await refusedWith(env)).toMatch(/vault\.key in .*: .* missing or different here/);
    await writeFile(file, key);
    await once(env);
  });

  it.each([{ NODE_ENV: 'production' }, { DATABASE_URL: 'postgres://127.0.0.1:1/none' }])(
    '100: in production without a key is refused (%j)',
    async production => {
      await using folder = temporaryFolder();
      const env = { SWITCHBOARD_DATA_DIR: path.join(folder.path, 'data'), ...production };
      expect(await refusedWith(env as Record<string, string>)).toMatch(
        /^switchboard: SWITCHBOARD_KEKS: must be set when .*openssl rand -base64 32\), or the keys of the installation/m,
      );
    },
  );
});
