import { randomBytes } from 'node:crypto';
import type { LookupAddress } from 'node:dns';
import { Writable } from 'node:stream';
import { sql } from 'drizzle-orm';
import { describe, expect, it } from 'vitest';
import { Audit } from '../../../../src/core/access/audit.ts';
import { tenants, users } from '../../../../src/core/access/schema.ts';
import { Vault } from '../../../../src/core/identity/vault/vault.ts';
import { Webhooks } from '../../../../src/core/identity/webhooks/webhooks.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import { rows } from '../../../../src/platform/database/database.ts';
import { Guard, type GuardOptions } from '../../../../src/platform/outbound/guard.ts';
import { createLog } from '../../../../src/platform/telemetry/log.ts';
import { systemClock } from '../../../../src/platform/time.ts';
import { openTestDatabase } from '../../../support/database.ts';
import { eventually } from '../../../support/processes.ts';
import { listen, refusedPort } from '../../../support/upstreams/http.ts';
import { signaturesOf, startReceiver } from '../../../support/webhook-receiver.ts';

const PAUSES_SEC = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];

/** The webhooks of a database of their own. Nothing is sent before a kick. */
async function start(guardOptions: Partial<GuardOptions> = {}) {
  await using opened = new AsyncDisposableStack();
  const database = await openTestDatabase();
  opened.defer(() => database.close());
  const { db } = database;
  const lines: string[] = [];
  const log = createLog(
    'info',
    new Writable({ write: (chunk: Buffer, _encoding, done) => (lines.push(chunk.toString()), done()) }),
  );
  const metrics = new Metrics();
  const audit = new Audit(db, log, metrics);
  const vault = await Vault.create([{ id: 'k1', key: randomBytes(32) }]);
  const guard = new Guard({ allowPrivateNetwork: true, connectTimeoutMs: 1_000, ...guardOptions });
  const webhooks = new Webhooks({ db, vault, audit, clock: systemClock, log, metrics, guard });
  opened.defer(() => webhooks.close());
  const known = new Set<string>();

  const outbox = () =>
    rows<{ id: string; tenant_id: string; attempts: number; failure: string | null; wait: number }>(
      db,
      sql`select id, tenant_id, attempts, failure, extract(epoch from next_at - now())::float8 as wait from webhook_outbox order by created_at, id`,
    );
  const count = async (outcome: string) => {
    const text = await metrics.text();
    const found = new RegExp(`^switchboard_webhook_deliveries_total\\{outcome="${outcome}"\\} (\\d+)`, 'm');
    return Number(found.exec(text)?.[1] ?? 0);
  };
  const running = opened.move();
  return {
    db,
    webhooks,
    outbox,
    count,
    logged: () => lines.join(''),
    audited: async (event: string) =>
      rows<{ tenant_id: string; outcome: string; meta: any }>(
        db,
        sql`select tenant_id, outcome, meta from audit_log where event = ${event} order by id`,
      ),
    /** Sets the webhook of a tenant, which need not exist. Resolves to its secret. */
    async set(tenantId: string, url: string): Promise<string> {
      if (!known.has(tenantId)) {
        await db.insert(tenants).values({ id: tenantId });
        await db.insert(users).values({ id: `usr_${tenantId}`, tenantId, externalId: 'ada' });
        known.add(tenantId);
      }
      return (await webhooks.set({ tenantId, requestId: 'req_1' }, url)).secret ?? '';
    },
    /** Records events of a tenant, and sends them. */
    async tell(tenantId: string, events = 1): Promise<void> {
      for (let event = 0; event < events; event++)
        await webhooks.events.connection(
          db,
          { id: `con_${event}`, tenantId, userId: `usr_${tenantId}`, provider: 'local', issuer: null },
          { event: 'created' },
        );
      webhooks.events.kick();
    },
    /** Lets time pass for the outbox, and looks what is due. */
    async elapse(seconds: number): Promise<void> {
      const past = sql`make_interval(secs => ${seconds})`;
      await db.execute(
        sql`update webhook_outbox set next_at = next_at - ${past}, created_at = created_at - ${past}`,
      );
      await db.execute(sql`update webhook_secrets set expires_at = expires_at - ${past}`);
      webhooks.events.kick();
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

describe('an event', () => {
  it('is tried ten times in three days, then dropped, which the audit log, the log and the metrics tell', async () => {
    await using sent = await start();
    await using receiver = await startReceiver();
    await sent.set('acme', receiver.url);
    receiver.conduct = 503;
    await sent.tell('acme');
    for (const [index, pauseSec] of PAUSES_SEC.entries()) {
      await eventually(`attempt ${index + 1}`, async () => (await sent.count('failed')) === index + 1);
      const [row] = await sent.outbox();
      expect(row).toMatchObject({ attempts: index + 1, failure: 'HTTP 503' });
      expect(row?.wait).toBeGreaterThan(pauseSec - 5);
      expect(row?.wait).toBeLessThanOrEqual(pauseSec * 1.1);
      await sent.elapse(pauseSec * 1.1);
    }
    await eventually('it is dropped', async () => (await sent.outbox()).length === 0);
    expect(receiver.all).toHaveLength(PAUSES_SEC.length + 1);
    expect(new Set(receiver.all.map(({ id }) => id)).size).toBe(1);
    expect(await sent.audited('webhook_dropped')).toEqual([
      {
        tenant_id: 'acme',
        outcome: 'failed',
        meta: { id: receiver.all[0]?.id, type: 'connection.created', attempts: 10, problem: 'HTTP 503' },
      },
    ]);
    expect(await sent.count('dropped')).toBe(1);
    expect(sent.logged()).toContain('"event":"webhook_dropped"');
    expect(sent.logged()).toContain('webhook not delivered, will be retried');
    expect(sent.logged()).not.toContain('ada');
  });

  it('that is too old is tried once more, however seldom it was tried, then dropped', async () => {
    await using sent = await start();
    await using receiver = await startReceiver();
    await sent.set('acme', receiver.url);
    receiver.conduct = 500;
    await sent.tell('acme');
    await eventually('a first attempt', async () => (await sent.count('failed')) === 1);
    await sent.elapse(4 * 86_400);
    await eventually('it is dropped', async () => (await sent.outbox()).length === 0);
    expect(receiver.all).toHaveLength(2);
  });

  it.each<[string, (origin: string) => Promise<string>, string]>([
    [
      'answers with a redirect',
      origin => Promise.resolve(`${origin}/away`),
      'HTTP 307: redirects are not followed',
    ],
    ['does not listen', async () => `http://127.0.0.1:${await refusedPort()}/hooks`, 'ECONNREFUSED'],
    ['does not exist', () => Promise.resolve('http://receiver.invalid/hooks'), 'ENOTFOUND'],
  ])('waits for a receiver that %s', async (_what, address, problem) => {
    await using sent = await start({
      resolve: (hostname, done) =>
        done(Object.assign(new Error(`getaddrinfo ENOTFOUND ${hostname}`), { code: 'ENOTFOUND' }), []),
    });
    await using receiver = await startReceiver();
    await using target = await startReceiver();
    receiver.conduct = { location: target.url };
    await sent.set('acme', await address(`http://127.0.0.1:${receiver.port}`));
    await sent.tell('acme');
    await eventually('an attempt', async () => (await sent.count('failed')) === 1);
    expect(await sent.outbox()).toMatchObject([{ attempts: 1, failure: problem }]);
    expect(target.all).toEqual([]);
  });

  it('is delivered by any 2xx; what else the receiver says is not read', async () => {
    await using sent = await start();
    // Says 200 and then never stops talking.
    await using endless = await listen((request, response) => {
      request.resume();
      response.writeHead(200, { 'content-type': 'text/html' });
      const talk = () => void (response.destroyed || response.write('x'.repeat(65_536), talk));
      talk();
    });
    await sent.set('acme', `${endless.origin}/hooks`);
    await sent.tell('acme');
    await eventually('it is delivered', async () => (await sent.count('ok')) === 1);
    expect(await sent.outbox()).toEqual([]);
  });

  it('never reaches a private address: not by its number, not by a name that leads there', async () => {
    const asked: string[] = [];
    const resolve = (hostname: string, done: (error: null, found: LookupAddress[]) => void) => {
      asked.push(hostname);
      done(null, [{ address: '127.0.0.1', family: 4 }]);
    };
    await using receiver = await startReceiver();
    await using sent = await start({ allowPrivateNetwork: false, resolve });
    for (const url of [
      receiver.url,
      receiver.url.replace('http:', 'https:'),
      'https://10.0.0.1/',
      'https://[::1]/',
      'https://169.254.169.254/latest',
    ])
      await expect(sent.set('acme', url), url).rejects.toMatchObject({ code: 'invalid_request' });
    await sent.set('acme', `https://app.example:${receiver.port}/hooks`);
    await sent.tell('acme');
    await eventually('an attempt', async () => (await sent.count('failed')) === 1);
    expect(asked).toEqual(['app.example']);
    expect(await sent.outbox()).toMatchObject([{ failure: 'the address is not allowed' }]);
    expect(sent.logged()).not.toContain('127.0.0.1');
    expect(receiver.all).toEqual([]);
  });
});

describe('a receiver', () => {
  it('that answers 410 gets nothing any more, until its address is set again', async () => {
    await using sent = await start();
    await using receiver = await startReceiver();
    await sent.set('acme', receiver.url);
    receiver.conduct = 410;
    await sent.tell('acme', 3);
    await eventually('three answers', async () => (await sent.count('gone')) === 3);
    expect(await sent.audited('webhook_disabled')).toMatchObject([
      { tenant_id: 'acme', outcome: 'failed', meta: { host: `127.0.0.1:${receiver.port}`, dropped: 3 } },
    ]);
    expect(await sent.outbox()).toEqual([]);
    expect(await sent.webhooks.show('acme')).toMatchObject({ disabled_at: expect.any(String), waiting: 0 });
    const asked = receiver.all.length;
    await sent.tell('acme');
    expect(await sent.outbox()).toEqual([]);

    receiver.conduct = 204;
    expect(await sent.set('acme', receiver.url)).toBe('');
    await sent.tell('acme');
    await eventually('it gets events again', async () => (await sent.count('ok')) === 1);
    expect(receiver.all).toHaveLength(asked + 1);
    expect(await sent.webhooks.show('acme')).toMatchObject({ disabled_at: null });
  });

  it('that hangs does not delay another, and gets at most four requests at a time', async () => {
    await using sent = await start();
    await using hanging = await startReceiver();
    await using quick = await startReceiver();
    hanging.conduct = 'silent';
    await sent.set('acme', hanging.url);
    await sent.set('other', quick.url);
    await sent.tell('acme', 20);
    await eventually('it hangs', () => hanging.all.length === 4);
    await sent.tell('other', 10);
    await eventually('the other one has all', () => quick.all.length === 10);
    expect(hanging.all).toHaveLength(4);
    // Ended with the process, and nothing of it is lost.
    await sent.webhooks.close();
    expect(await sent.outbox()).toHaveLength(20);
    expect(await sent.count('failed')).toBe(0);
  });

  it('that refuses everything is asked one at a time, until it takes something', async () => {
    await using sent = await start();
    await using receiver = await startReceiver();
    receiver.conduct = 500;
    await sent.set('acme', receiver.url);
    await sent.tell('acme', 12);
    await eventually('four attempts', async () => (await sent.count('failed')) === 4);
    sent.webhooks.events.kick();
    await eventually('one more', async () => (await sent.count('failed')) === 5);
    expect(receiver.all).toHaveLength(5);
    receiver.conduct = 204;
    sent.webhooks.events.kick();
    await eventually('the seven others', async () => (await sent.count('ok')) === 7);
    expect(await sent.outbox()).toHaveLength(5);
  });

  it('gets at once what waits, when its address is set again after an outage', async () => {
    await using sent = await start();
    await using receiver = await startReceiver();
    receiver.conduct = 500;
    await sent.set('acme', receiver.url);
    await sent.tell('acme', 3);
    await eventually('three attempts', async () => (await sent.count('failed')) === 3);
    await sent.elapse(6);
    await eventually('the next attempts', async () => (await sent.count('failed')) >= 4);
    await sent.elapse(0);
    await eventually('all wait for minutes', async () => {
      sent.webhooks.events.kick();
      return (await sent.outbox()).every(({ wait }) => wait > 60);
    });
    receiver.conduct = 204;
    await sent.set('acme', receiver.url);
    await eventually('the outbox is empty', async () => (await sent.outbox()).length === 0);
    expect(await sent.count('ok')).toBe(3);
  });

  it('has at most 10,000 events waiting: the oldest are dropped', async () => {
    await using sent = await start();
    await using receiver = await startReceiver();
    receiver.conduct = 500;
    await sent.set('acme', receiver.url);
    await sent.set('other', receiver.url);
    const fill = (tenantId: string, events: number) =>
      sent.db.execute(sql`
        insert into webhook_outbox (id, tenant_id, type, body, next_at, created_at)
        select ${tenantId} || n, ${tenantId}, 'connection.created', '{}', now() + interval '1 day', now() + make_interval(secs => n)
        from generate_series(1, ${events}::int) n`);
    await fill('acme', 10_007);
    await fill('other', 5);
    await sent.webhooks.trim();
    const ids = (await sent.outbox()).map(({ id }) => id);
    expect(ids).toHaveLength(10_005);
    expect(ids).not.toContain('acme7');
    expect(ids).toContain('acme8');
    expect(await sent.audited('webhook_dropped')).toMatchObject([
      { tenant_id: 'acme', meta: { count: 7, problem: 'more than 10000 waiting' } },
    ]);
    expect(await sent.count('dropped')).toBe(7);
  });
});

describe('a signing secret', () => {
  it('that was rotated signs beside the new one until the overlap ends', async () => {
    await using sent = await start();
    await using receiver = await startReceiver();
    const actor = { tenantId: 'acme', requestId: 'req_1' };
    const first = await sent.set('acme', receiver.url);
    expect(first).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    const { secret: second, webhook } = await sent.webhooks.rotate(actor, 24 * 3600);
    expect(second).not.toBe(first);
    expect(Date.parse(webhook.old_secrets_until ?? '') - Date.now()).toBeGreaterThan(86_000_000);
    const { secret: third } = await sent.webhooks.rotate(actor, 24 * 3600);
    const signedBy = async () => {
      receiver.forget();
      await sent.tell('acme');
      await eventually('an event', async () => (await sent.outbox()).length === 0);
      const [delivery] = receiver.all;
      if (!delivery) throw new Error('received above');
      return [first, second, third].map(secret => signaturesOf(delivery, secret).indexOf(true));
    };
    expect(await signedBy()).toEqual([2, 1, 0]);
    await sent.elapse(24 * 3600 + 1);
    expect(await signedBy()).toEqual([-1, -1, 0]);
    // The older ones of a leaked secret end with it.
    const { secret: fourth } = await sent.webhooks.rotate(actor, 24 * 3600);
    await sent.webhooks.rotate(actor, 0);
    expect(await signedBy()).toEqual([-1, -1, -1]);
    expect(fourth).not.toBe(third);
    expect(
      await rows(
        sent.db,
        sql`select id from webhook_secrets where expires_at is not null and expires_at > now()`,
      ),
    ).toEqual([]);
  });

  it('that was lost with the vault stops nothing but the sending, until there is a new one', async () => {
    await using sent = await start();
    await using receiver = await startReceiver();
    await sent.set('acme', receiver.url);
    await sent.db.execute(sql`delete from webhook_secrets`);
    await sent.tell('acme');
    await eventually('an attempt', async () => (await sent.count('failed')) === 1);
    expect(await sent.outbox()).toMatchObject([{ failure: expect.stringContaining('webhook rotate') }]);
    expect(receiver.all).toEqual([]);
    const { secret } = await sent.webhooks.rotate({ tenantId: 'acme', requestId: 'req_1' }, 0);
    await sent.elapse(6);
    await eventually('it is delivered', () => receiver.all.length === 1);
    expect(receiver.all.map(one => signaturesOf(one, secret))).toEqual([[true]]);
  });

  it('of another row is not used', async () => {
    await using sent = await start();
    await using receiver = await startReceiver();
    await sent.set('acme', receiver.url);
    await sent.set('other', receiver.url);
    await sent.db.execute(
      sql`update webhook_secrets set sealed = (select sealed from webhook_secrets where tenant_id = 'other') where tenant_id = 'acme'`,
    );
    await sent.tell('acme');
    await eventually('an attempt', async () => (await sent.count('failed')) === 1);
    expect(receiver.all).toEqual([]);
    expect(sent.logged()).toContain('ALARM');
  });
});
