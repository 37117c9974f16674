import type { z } from 'zod';
import type { RateClass } from '../../config.ts';
import type { Caller, Scope } from '../../core/caller.ts';
import type { Core } from '../../core/core.ts';
import type { ErrorCode } from '../../errors.ts';

export const KIB = 1024;
export const MIB = 1024 * KIB;

interface EndpointBase {
  readonly method: 'post' | 'get';
  /** In Express's form, such as `/v1/identity/sessions/:session_id`. */
  readonly path: string;
  readonly operationId: string;
  readonly tag: 'Search' | 'Proxy' | 'Identity' | 'Registry';
  readonly summary: string;
  readonly description: string;
  readonly scope: Scope;
  readonly rateClass?: RateClass;
  readonly maxBodyBytes: number;
  /** What the endpoint can answer besides 200, next to what every endpoint can. */
  readonly errors: readonly ErrorCode[];
  readonly responseSchema: z.ZodType;
  /** Takes the header Idempotency-Key. */
  readonly idempotent?: true;
  /** Parameters of the query string. */
  readonly querySchema?: z.ZodObject;
  /** The answer's own shape of an error is a JSON-RPC response as well (`POST /v1/mcp/call`). */
  readonly jsonRpc?: true;
}

/** What of a request is not its body. */
export interface RequestParts {
  readonly params: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, string>>;
  readonly idempotencyKey: string | undefined;
  /** When it arrived, by the core's clock. */
  readonly arrivedMs: number;
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
