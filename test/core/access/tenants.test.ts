import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ensureTenant, Tenants } from '../../../src/core/access/tenants.ts';
import { Audit } from '../../../src/core/access/audit.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';

let database: OpenDatabase;
let tenants: Tenants;
beforeAll(async () => {
  database = await openTestDatabase();
  tenants = new Tenants(database.db, new Audit(database.db, createLog('silent')));
  await ensureTenant(database.db, 'acme');
});
afterAll(() => database.close());

const refusal = (change: Promise<unknown>) =>
  change.then(
    () => undefined,
    (error: Error) => error,
  );

describe('a tenant', () => {
  it('keeps what a change does not name', async () => {
    await tenants.change('acme', { name: 'Acme', mode: 'page', returnUrls: ['https://a.example'] });
    expect(await tenants.change('acme', { name: '' })).toMatchObject({
      name: null,
      mode: 'page',
      return_urls: ['https://a.example'],
    });
    expect(await tenants.change('acme', {})).toEqual(await tenants.get('acme'));
  });

  it('that does not exist is not made by a change', async () => {
    for (const change of [
      tenants.change('amce', { name: 'x' }),
      tenants.change('amce', {}),
      tenants.get('amce'),
    ])
      expect(await refusal(change)).toMatchObject({ code: 'invalid_request' });
  });
});

describe('return URLs', () => {
  it.each([
    'https://app.example',
    'https://app.example/done?next=%2C',
    'http://localhost:3000/done',
    'http://127.0.0.1/',
    'http://[::1]:8080/x',
  ])('accepts %s unchanged', async url => {
    expect((await tenants.change('acme', { returnUrls: [url, url] })).return_urls).toEqual([url]);
  });

  it.each([
    ['http://app.example/', 'must be https'],
    ['http://127.0.0.1.evil.example/', 'must be https'],
    ['http://localhost@evil.example/', 'must be https'],
    ['https://me:pw@app.example/', 'must not have a user name'],
    ['https://app.example/#', 'must not have a fragment'],
    ['https://app.example/#x', 'must not have a fragment'],
    ['//app.example', 'must be an absolute URL'],
    ['https:app.example', 'must be an absolute URL'],
    ['https:\\\\app.example', 'must be an absolute URL'],
    ['https://app.example\\@evil.example', 'must be an absolute URL'],
    ['https://app.example/a b', 'must be an absolute URL'],
    ['https://app.example/\r\nx', 'must be an absolute URL'],
    ['javascript:alert(1)', 'must be an absolute URL'],
    ['data:text/html,x', 'must be an absolute URL'],
    [`https://app.example/${'x'.repeat(2048)}`, 'must be an absolute URL'],
    ['', 'must be an absolute URL'],
  ])('refuses %j', async (url, reason) => {
    const error = await refusal(tenants.change('acme', { returnUrls: ['https://good.example', url] }));
    expect(error?.message).toContain(reason);
  });
});
