import { z } from 'zod';
import { LOCAL_TENANT } from '../../../core/access/tenants.ts';
import type { Caller } from '../../../core/access/caller.ts';
import type { Core } from '../../../core/core.ts';
import { SwitchboardError, type ErrorCode } from '../../../errors.ts';
import type { Telling } from '../progress.ts';

/** What an operation is given besides its caller. `params` are those of the path, `query` those of the query string. */
export interface OperationInput<Body, Query> {
  readonly body: Body;
  readonly params: Readonly<Record<string, string>>;
  readonly query: Query;
  /** What whoever waits for long work is told meanwhile. */
  readonly telling: Telling;
}

interface OperationBase {
  readonly method: 'get' | 'post';
  /** In Express's form. The control socket serves it as it stands, the REST face under `/v1/admin`. */
  readonly path: string;
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  /** What it can be refused with, besides what every endpoint can. */
  readonly errors: readonly ErrorCode[];
  readonly responseSchema: z.ZodType;
  readonly bodySchema?: z.ZodType;
  readonly querySchema?: z.ZodObject;
  /** It may take long: who accepts `application/x-ndjson` hears how far it is, in lines. */
  readonly isLong?: true;
}

/** One of the operator's operations, the same on the control socket and under `/v1/admin`. */
export interface Operation extends OperationBase {
  readonly run: (core: Core, caller: Caller, input: OperationInput<unknown, unknown>) => Promise<unknown>;
  /** Absent: the body is JSON, or there is none. */
  readonly stream?: StreamedOperation;
}

/** Long work on a body that is read as it comes. */
export interface StreamedOperation {
  /** What the body may be declared as. */
  readonly types: readonly string[];
  /** Reads the body to its end, then gives the work that is left. It ends with the caller's signal, by throwing its reason. */
  readonly read: (
    core: Core,
    caller: Caller,
    body: AsyncIterable<Buffer>,
    query: unknown,
  ) => Promise<(telling: Telling) => Promise<unknown>>;
}

/** Ties the handler's types to the schemas. */
export function operation<Body extends z.ZodType = z.ZodUndefined, Query extends z.ZodObject = z.ZodObject>(
  definition: OperationBase & {
    readonly bodySchema?: Body;
    readonly querySchema?: Query;
    readonly handle: (
      core: Core,
      caller: Caller,
      input: OperationInput<z.output<Body>, z.output<Query>>,
    ) => Promise<unknown>;
  },
): Operation {
  const { handle, ...rest } = definition;
  return {
    ...rest,
    // Both faces have parsed them with these very schemas.
    run: async (core, caller, input) => {
      if (Object.values(input.params).some(one => one.includes('\0'))) throw noId();
      return handle(core, caller, input as OperationInput<z.output<Body>, z.output<Query>>);
    },
  };
}

const noId = () =>
  new SwitchboardError('invalid_request', 'The path holds a NUL character, which no id has.');

/**
 * Who may administer: the scope is over the whole installation, so it counts with keys of the operator's own tenant alone.
 * The end user of an identity token that came along is left out: an operator acts for none.
 * @throws SwitchboardError `insufficient_scope`
 */
export function asOperator({ subject: _endUser, ...caller }: Caller): Caller {
  if (caller.tenantId === LOCAL_TENANT) return caller;
  throw new SwitchboardError(
    'insufficient_scope',
    `A key with the scope "admin" administers only as one of the tenant "${LOCAL_TENANT}". Use such a key.`,
  );
}

/** @throws SwitchboardError `unsupported_media_type` for a body that is declared as something else. */
export function requireType({ types }: StreamedOperation, contentType = ''): void {
  const [type = ''] = contentType.toLowerCase().split(';');
  if (types.includes(type.trim())) return;
  throw new SwitchboardError(
    'unsupported_media_type',
    `Send the body in UTF-8 as Content-Type: ${types.join(' or ')}.`,
  );
}
