import { SwitchboardError } from '../../errors.ts';
import type { Caller } from '../access/caller.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Credentials } from '../identity/connections/credentials.ts';
import type { Budget } from './upstream/deadline.ts';
import type { Params } from './upstream/envelope.ts';
import type { View } from './tool-definitions.ts';
import type { UpstreamCall } from './upstream/upstream-requests.ts';
import type { UpstreamReply, Upstreams } from './upstream/upstreams.ts';

/** Asks one server on behalf of one caller. */
export interface Ask {
  (method: string, params?: Params, onNotification?: UpstreamCall['onNotification']): Promise<UpstreamReply>;
  /** What the answers hold for. */
  readonly view: View;
}

interface Asking {
  readonly caller: Caller;
  readonly server: Server;
  readonly credentials: Pick<Credentials, 'forCall' | 'renewed'>;
  readonly upstreams: Pick<Upstreams, 'request'>;
}

/**
 * What an operation asks its server with. The user's token is looked up here, before anything goes upstream and once for
 * all requests of the operation. A server that refuses it (401, so nothing was run) is asked once more with a newer one,
 * where there is one.
 * @throws SwitchboardError what `Credentials.forCall` refuses with; from the function, also what `renewed` does.
 */
export async function asker(
  { caller, server, credentials, upstreams }: Asking,
  budget: Budget,
): Promise<Ask> {
  const lookup = credentials.forCall(caller, server);
  let credential = lookup && (await budget.wait(lookup));
  let mayRenew = true;
  const ask = async (
    method: string,
    params?: Params,
    onNotification?: UpstreamCall['onNotification'],
  ): Promise<UpstreamReply> => {
    const send = () =>
      upstreams.request({ caller, server, credential, method, params, onNotification }, budget);
    try {
      return await send();
    } catch (error) {
      if (!credential || !mayRenew || !isUnauthorized(error)) throw error;
      mayRenew = false;
      const newer = await budget.wait(credentials.renewed(caller, server, credential));
      if (!newer) throw error;
      credential = newer;
    }
    return send();
  };
  return Object.assign(ask, { view: { server, caller, connectionId: credential?.connectionId } });
}

const isUnauthorized = (error: unknown) =>
  error instanceof SwitchboardError && error.code === 'upstream_unauthorized';
