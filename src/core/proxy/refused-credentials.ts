import type { Caller } from '../access/caller.ts';
import type { ServerHead } from '../catalogue/entry.ts';
import type { Credentials } from '../identity/connections/credentials.ts';
import type { Credential } from '../identity/connections/holdings.ts';
import type { Deadline } from './upstream/deadline.ts';
import type { refusalOf } from './upstream/failures.ts';

/** The caller, the server and the deadline of one operation. */
export interface OperationContext {
  readonly caller: Caller;
  readonly server: ServerHead;
  readonly deadline: Deadline;
}

/** A credential that the server refused. */
interface Refused {
  /** Undefined if the request carried none. */
  readonly credential: Credential | undefined;
  readonly refusal: NonNullable<ReturnType<typeof refusalOf>>;
  /** The refusals of the operation so far, with this one. */
  readonly count: number;
}

/**
 * Returns the credential to repeat a refused request with; undefined if the refusal stands. The newer credential may be refused as
 * well, for lack of scopes or for good, which somebody must be told. It is not replaced again.
 * @throws SwitchboardError as `Credentials.renewAfterRefusal`
 */
export async function credentialAfterRefusal(
  credentials: Pick<Credentials, 'renewAfterRefusal'>,
  { caller, server, deadline }: OperationContext,
  { credential, refusal, count }: Refused,
): Promise<Credential | undefined> {
  if (count > 2) return undefined;
  const newer = await deadline.wait(credentials.renewAfterRefusal(caller, server, credential, refusal));
  return count === 1 ? newer : undefined;
}
