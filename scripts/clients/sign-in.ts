import assert from 'node:assert/strict';
import type { Browser } from './browser.ts';
import type { Client, ClientKind, Servers } from './client.ts';
import type { Given } from './model.ts';
import { unlessAborted } from './processes.ts';
import type { Setting } from './setting.ts';

/** How a client became known to Switchboard; undefined with a key. */
type Registration = 'document' | 'registration';

type Started = Awaited<ReturnType<ClientKind['install']>>;

/** The client is given the address alone. A browser opens, in which its user signs in and allows it, and then it calls. */
export async function tryAddressAlone(
  start: Started,
  setting: Setting,
  user: string,
  signal: AbortSignal,
): Promise<Registration> {
  const server = await setting.signInServerFor(user);
  await using browser: Browser = server.browser;
  try {
    await calls(start, { switchboard: server }, signal);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(
      `${reason}; its browser: ${(await browser.opened()).join(', ')} ${await browser.story()}`,
      {
        cause: error,
      },
    );
  }
  const [opened = '', ...again] = await browser.opened();
  assert.deepEqual(again, [], 'it signed in more than once');
  return new URL(opened).searchParams.get('client_id')?.startsWith('https://') === true
    ? 'document'
    : 'registration';
}

/** The client is given a key, as if there were no sign-in. */
export async function tryKey(
  start: Started,
  setting: Setting,
  user: string,
  signal: AbortSignal,
): Promise<void> {
  const { switchboard } = await setting.serversFor(user);
  if (!switchboard) throw new Error('there is no Switchboard');
  await calls(start, { switchboard }, signal);
}

async function calls(start: Started, servers: Servers, signal: AbortSignal): Promise<void> {
  await using client = await unlessAborted(signal, start(servers));
  const found = await unlessAborted(signal, search(client));
  assert.match(textOf(found), /"everything"/);
  const input = { server_id: 'everything', tool_name: 'echo', arguments: { message: 'high tide' } };
  const echoed = await unlessAborted(signal, client.call('switchboard', 'call_remote_tool', input));
  assert.match(textOf(echoed), /Echo: high tide/);
}

const search = (client: Client) =>
  client.call('switchboard', 'search_servers', { query: 'echoes a message and sums numbers' });

const textOf = ({ texts, structured }: Given): string =>
  [...texts, JSON.stringify(structured ?? null)].join('\n');
