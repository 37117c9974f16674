import { operations } from '../../operations/index.ts';
import { asOperator, type Operation } from '../../operations/operation.ts';
import { MIB, type Endpoint } from '../endpoint.ts';

/** The operations of the control socket, for keys of the scope `admin`. */
export const adminEndpoints: readonly Endpoint[] = operations.map(
  ({ stream, ...one }: Operation): Endpoint => ({
    ...one,
    path: `/v1/admin${one.path}`,
    tag: 'Admin',
    scope: 'admin',
    rateClass: 'admin',
    maxBodyBytes: MIB,
    errors: [...one.errors, 'rate_limited'],
    bodySchema: one.bodySchema,
    run: (core, caller, body, { params, query }) =>
      one.run(core, asOperator(caller), { body, params, query }),
    ...(stream && {
      stream: { ...stream, read: (core, caller, ...rest) => stream.read(core, asOperator(caller), ...rest) },
    }),
  }),
);
