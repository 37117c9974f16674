import type { z } from 'zod';
import type { Caller } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import { SwitchboardError } from '../../errors.ts';
import { endpoint, MIB, type Endpoint, type Input } from '../http/endpoint.ts';

/** The policy of the whole admin API, and what its endpoints have in common. */
export const ADMIN = {
  tag: 'Admin',
  scope: 'admin',
  rateLimit: 'admin',
  user: 'checked',
  maxBodyBytes: MIB,
  cache: 'no-store',
} as const;

type Described = Pick<
  Endpoint,
  'method' | 'path' | 'operationId' | 'summary' | 'description' | 'errors' | 'responseSchema' | 'isLong'
>;

/**
 * Defines an endpoint of the admin API; its path stands below `/v1/admin`, or alone on the control socket. The end user of an identity
 * token that came along is left out: an operator acts for none.
 */
export function operation<Body extends z.ZodType = z.ZodUndefined, Query extends z.ZodObject = z.ZodObject>({
  handle,
  ...definition
}: Described & {
  readonly bodySchema?: Body;
  readonly querySchema?: Query;
  readonly handle: (
    core: Core,
    caller: Caller,
    input: Input<z.output<Body>, z.output<Query>>,
  ) => Promise<unknown>;
}): Endpoint {
  return endpoint({
    ...ADMIN,
    ...definition,
    errors: [...definition.errors, 'rate_limited'],
    handle: async (core, { subject: _endUser, ...caller }, input) => {
      if (Object.values(input.params).some(one => one.includes('\0'))) throw noId();
      return handle(core, caller, input);
    },
  });
}

const noId = () =>
  new SwitchboardError('invalid_request', 'The path holds a NUL character, which no id has.');
