import { expect, it, vi } from 'vitest';
import { startIdentity } from '../../support/identity.ts';
import { startGuarded } from '../../support/upstreams/authorised.ts';

it('of a tenant, four keys are tried at a time; a further one is 429, and one of another tenant is tried', async () => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  let waiting = 0;
  await using upstream = await startGuarded('modern', async (_incoming, _message, outgoing) => {
    waiting++;
    await released;
    outgoing.writeHead(401).end();
    return true;
  });
  await using sb = await startIdentity({
    catalogue: [{ id: 'slow', remote_url: upstream.url, auth: { kind: 'credentials' } }],
  });
  const put = (headers = {}) => {
    const body = { user_id: 'ada', server_id: 'slow', values: { token: 'a-wrong-key' } };
    return sb.put('/v1/identity/connections', body, headers);
  };
  const trials = [put(), put(), put(), put()];
  await vi.waitUntil(() => waiting === 4, 60_000);
  expect(await put()).toMatchObject({ status: 429, json: { code: 'rate_limited' } });
  trials.push(put({ 'x-api-key': sb.otherKey }));
  await vi.waitUntil(() => waiting === 5, 60_000);
  release();
  for (const { json } of await Promise.all(trials)) expect(json.code).toBe('credentials_rejected');
  expect((await put()).json.code).toBe('credentials_rejected');
});
