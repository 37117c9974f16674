import type { z } from 'zod';
import type { RateClass } from '../../config/index.ts';
import type { Policy, Throttle } from '../../core/access/admit.ts';
import type { Caller } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import type { ErrorCode } from '../../errors.ts';
import type { ProgressListener } from './progress.ts';

export const KIB = 1024;
export const MIB = 1024 * KIB;

export type PathParams = Readonly<Record<string, string>>;

interface EndpointBase extends Omit<Policy, 'rateLimit'> {
  readonly method: 'post' | 'get';
  /** The path, with a name for each parameter, such as `/v1/identity/sessions/:session_id`. */
  readonly path: string;
  readonly operationId: string;
  readonly tag: 'Search' | 'Proxy' | 'Identity' | 'Registry' | 'Admin';
  readonly summary: string;
  readonly description: string;
  /** The class whose budget a request spends, or a limit of its own. Absent: none. */
  readonly rateLimit?: RateClass | ((params: PathParams) => Throttle) | undefined;
  readonly maxBodyBytes: number;
  /** `no-store`: answers hold secrets, or are private to their caller. */
  readonly cache?: 'no-store';
  /** Takes the header Switchboard-Timeout-Ms. */
  readonly timeoutHeader?: true;
  /** Takes the header Idempotency-Key. */
  readonly idempotent?: true;
  /** The errors that the endpoint can answer with, besides those of every endpoint. */
  readonly errors: readonly ErrorCode[];
  readonly querySchema?: z.ZodObject;
  readonly responseSchema: z.ZodType;
  /** The work may take long. A caller that accepts `application/x-ndjson` gets its progress, line by line. */
  readonly isLong?: true;
}

/** A checked request. */
export interface Input<Body = unknown, Query = unknown> {
  readonly body: Body;
  readonly params: PathParams;
  readonly query: Query;
  readonly idempotencyKey: string | undefined;
  /** When the request arrived, by the core's clock. */
  readonly arrivedMs: number;
  readonly progress: ProgressListener;
}

/** Long work on a body that is read as it comes. */
export interface StreamedBody {
  /** The media types that the body may have. */
  readonly types: readonly string[];
  /**
   * Reads the body to its end and returns the work that is left. The work ends with the caller's signal, by throwing its reason.
   * @throws SwitchboardError
   */
  readonly read: (
    core: Core,
    caller: Caller,
    body: AsyncIterable<Buffer>,
    query: unknown,
  ) => Promise<(progress: ProgressListener) => Promise<unknown>>;
}

type Run = (core: Core, caller: Caller, input: Input) => Promise<unknown>;

/** One endpoint: what the pipeline runs and what the OpenAPI document says, in one place. */
export type Endpoint = EndpointBase &
  (
    | { readonly stream?: undefined; readonly bodySchema?: z.ZodType | undefined; readonly run: Run }
    | { readonly stream: StreamedBody; readonly bodySchema?: undefined }
  );

/** Ties the types of a handler to the schemas of its endpoint. */
export function endpoint<Body extends z.ZodType = z.ZodUndefined, Query extends z.ZodObject = z.ZodObject>(
  definition: EndpointBase & {
    readonly bodySchema?: Body;
    readonly querySchema?: Query;
    readonly handle: (
      core: Core,
      caller: Caller,
      input: Input<z.output<Body>, z.output<Query>>,
    ) => Promise<unknown>;
  },
): Endpoint {
  const { handle, ...rest } = definition;
  return {
    ...rest,
    // The pipeline has parsed both with these very schemas.
    run: (core, caller, input) => handle(core, caller, input as Input<z.output<Body>, z.output<Query>>),
  };
}
