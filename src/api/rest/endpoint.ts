import type { z } from 'zod';
import type { RateClass } from '../../config/index.ts';
import type { Use } from '../../core/access/quota.ts';
import type { Caller, Scope } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import type { ErrorCode } from '../../errors.ts';
import type { StreamedOperation } from '../admin/operations/operation.ts';
import type { Telling } from '../admin/progress.ts';

export const KIB = 1024;
export const MIB = 1024 * KIB;

interface EndpointBase {
  readonly method: 'post' | 'get';
  /** In Express's form, such as `/v1/identity/sessions/:session_id`. */
  readonly path: string;
  readonly operationId: string;
  readonly tag: 'Search' | 'Proxy' | 'Identity' | 'Registry' | 'Admin';
  readonly summary: string;
  readonly description: string;
  readonly scope: Scope;
  readonly rateClass?: RateClass;
  /** What a request counts as against the key's monthly quota, once it is known to be well formed. */
  readonly use?: Use;
  readonly maxBodyBytes: number;
  /** What the endpoint can answer besides 200, next to what every endpoint can. */
  readonly errors: readonly ErrorCode[];
  readonly responseSchema: z.ZodType;
  /** Takes the header Idempotency-Key. */
  readonly idempotent?: true;
  /** Parameters of the query string. */
  readonly querySchema?: z.ZodObject;
  /** The body is read by the endpoint itself, as it comes. */
  readonly stream?: StreamedOperation;
  /** It may take long: who accepts `application/x-ndjson` hears how far it is, in lines. */
  readonly isLong?: true;
  /** The answer's own shape of an error is a JSON-RPC response as well (`POST /v1/mcp/call`). */
  readonly jsonRpc?: true;
}

/** What of a request is not its body. */
export interface RequestParts {
  readonly params: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, unknown>>;
  readonly idempotencyKey: string | undefined;
  /** When it arrived, by the core's clock. */
  readonly arrivedMs: number;
  /** What whoever waits for long work is told meanwhile. */
  readonly telling: Telling;
}

/** One endpoint of `/v1` or `/v0.1`: what the router runs and what the OpenAPI document says, in one place. */
export interface Endpoint extends EndpointBase {
  readonly bodySchema: z.ZodType | undefined;
  readonly run: (core: Core, caller: Caller, body: unknown, parts: RequestParts) => Promise<unknown>;
}

/** Ties the handler's type to the body's schema. */
export function endpoint<Schema extends z.ZodType>(
  definition: EndpointBase & {
    readonly bodySchema?: Schema;
    readonly handle: (
      core: Core,
      caller: Caller,
      body: z.output<Schema>,
      parts: RequestParts,
    ) => Promise<unknown>;
  },
): Endpoint {
  const { handle, bodySchema, ...rest } = definition;
  return {
    ...rest,
    bodySchema,
    // The router has parsed the body with this very schema.
    run: (core, caller, body, parts) => handle(core, caller, body as z.output<Schema>, parts),
  };
}
