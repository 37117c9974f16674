import { operations } from '../../admin/operations/index.ts';
import { asOperator, type Operation } from '../../admin/operations/operation.ts';
import { MIB, type Endpoint } from '../endpoint.ts';

/** An operation of the control socket, for keys of the scope `admin`. */
function adminEndpoint({ stream, ...one }: Operation): Endpoint {
  const endpoint: Endpoint = {
    ...one,
    path: `/v1/admin${one.path}`,
    tag: 'Admin',
    scope: 'admin',
    rateClass: 'admin',
    maxBodyBytes: MIB,
    errors: [...one.errors, 'rate_limited'],
    bodySchema: one.bodySchema,
    run: (core, caller, body, { params, query, telling }) =>
      one.run(core, asOperator(caller), { body, params, query, telling }),
  };
  if (!stream) return endpoint;
  const { types, read } = stream;
  return {
    ...endpoint,
    stream: { types, read: (core, caller, body, query) => read(core, asOperator(caller), body, query) },
  };
}

export const adminEndpoints: readonly Endpoint[] = operations.map(one => adminEndpoint(one));
