import { z } from 'zod';
import type { RateClass } from '../../config/index.ts';
import type { Policy, Throttle } from '../../core/access/admit.ts';
import type { Caller } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import { type ErrorCode, SwitchboardError } from '../../errors.ts';
import type { OnProgress } from '../../core/catalogue/catalogue.ts';
import { sanitise, codePointsIn } from '../../platform/sanitize.ts';
import { HEALTH_STATES } from '../../core/catalogue/health.ts';
import { isObject } from '../../platform/json-limits.ts';
import { MAX_FIND_CHARS } from '../../core/results/results.ts';
import { inWords } from '../../platform/zod-issues.ts';

export const NDJSON = 'application/x-ndjson';
export const KIB = 1024;
export const MIB = 1024 * KIB;

type PathParams = Readonly<Record<string, string>>;

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

/** Hears how far long work is. */
export interface ProgressListener {
  readonly onProgress: OnProgress;
  /** Hears how many entries of a registry have been read. */
  readonly onListed: (entries: number) => void;
  /** Hears a sentence for people. */
  readonly onNotice: (notice: string) => void;
}

export const SILENT: ProgressListener = { onProgress: () => {}, onListed: () => {}, onNotice: () => {} };

interface Route {
  /** Absent: nothing here takes this method. */
  readonly endpoint: Endpoint | undefined;
  readonly params: PathParams;
  /** The methods that the path takes, where there is no endpoint. Empty: the path does not exist. */
  readonly allowed: readonly string[];
}

export type FindRoute = (method: string, path: string) => Route;

/**
 * Returns the function that finds the endpoint of a request. It matches a path byte for byte; a GET endpoint answers HEAD too. It
 * throws `invalid_request` for a parameter that is not percent-encoded UTF-8.
 */
export function routerOf(endpoints: readonly Endpoint[]): FindRoute {
  const byPath = Map.groupBy(endpoints, ({ path }) => path);
  /** The segments of each path with parameters; those that start with a colon are names. */
  const patterns = [...byPath.keys()].filter(path => path.includes(':')).map(path => path.split('/'));
  return (method, path) => {
    const exact = path.includes(':') ? [] : (byPath.get(path) ?? []);
    const named = exact.find(one => takes(one, method));
    if (named) return { endpoint: named, params: {}, allowed: [] };
    const segments = path.split('/');
    const pattern = patterns.find(
      names =>
        names.length === segments.length &&
        names.every((name, at) => (name.startsWith(':') ? segments[at] !== '' : name === segments[at])),
    );
    // A server may be called `import`: a method that the path itself does not take may be for the entry of that id.
    const atPattern = pattern ? (byPath.get(pattern.join('/')) ?? []) : [];
    const params = (pattern ?? []).flatMap((name, at) =>
      name.startsWith(':') ? [[name.slice(1), decode(segments[at] ?? '')] as const] : [],
    );
    return {
      endpoint: atPattern.find(one => takes(one, method)),
      params: Object.fromEntries(params),
      allowed: [...exact, ...atPattern].map(one => one.method.toUpperCase()),
    };
  };
}

const takes = (one: Endpoint, method: string) =>
  one.method === (method === 'HEAD' ? 'get' : method.toLowerCase());

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch (cause) {
    throw new SwitchboardError(
      'invalid_request',
      `The path holds ${sanitise(segment)}, which cannot be decoded.`,
      { cause },
    );
  }
}

/** Words the error of a value that is missing or of another type, where more is to be said than its type. */
export const wrongType = (mustBe: string) => ({
  error({ code, input }: { readonly code: string; readonly input: unknown }) {
    if (code !== 'invalid_type') return undefined;
    return input === undefined ? `is missing; it ${mustBe}` : mustBe;
  },
});

/** The query of a search. Its length counts Unicode code points. */
export const queryText = z
  .string(wrongType('must be a string of 1 to 1000 characters'))
  .refine(text => text.trim() !== '', 'must not be empty: say in plain words what you want to do')
  .refine(text => codePointsIn(text) <= 1000, {
    error: issue => `must have at most 1000 characters, not ${codePointsIn(String(issue.input))}`,
  })
  .meta({
    minLength: 1,
    maxLength: 1000,
    description: 'What you want to do, in plain words. Its length counts Unicode code points.',
    examples: ['create an issue in our bug tracker'],
  });

export const searchLimit = z
  .int(wrongType('must be a whole number from 1 to 50'))
  .min(1)
  .max(50)
  .default(10)
  .describe('Servers at most.');

const FIND = `must be a string of 1 to ${MAX_FIND_CHARS} characters: the text to look for`;

/** The text to find in a kept result. Its length counts Unicode code points. */
export const findText = z
  .string(wrongType(FIND))
  .refine(text => text !== '' && codePointsIn(text) <= MAX_FIND_CHARS, FIND)
  .meta({ minLength: 1, maxLength: MAX_FIND_CHARS });

/** Refuses fields that contradict each other: a kept result is read on from `offset`, or searched for `find` from `from` on. */
export function checkReadOrFind(
  { offset, find, from }: { readonly offset?: unknown; readonly find?: unknown; readonly from?: unknown },
  context: z.RefinementCtx,
): void {
  const refuse = (field: string, message: string) => {
    context.addIssue({ code: 'custom', path: [field], message });
  };
  if (find !== undefined && offset !== undefined)
    refuse('offset', 'cannot be combined with find: use from to say where to search');
  if (find === undefined && from !== undefined)
    refuse('from', 'needs find: use offset to say where to read on');
}

/** Takes an object as it is: zod's own record leaves out a member named __proto__. */
export const jsonObject = z
  .unknown()
  .refine(isObject, 'must be a JSON object')
  .meta({ type: 'object', additionalProperties: {} });

export const serverId = z
  .string(wrongType("must be a string: a server's id as POST /v1/search returns it"))
  .min(1)
  .max(256)
  .describe("The server's id, as search returns it.");

/** Warnings on a tool's definition: see docs/tools.md. */
export const toolWarnings = z
  .array(z.string())
  .optional()
  .describe(
    'Warnings to read before the tool is called: definition_changed (within the last 7 days), suspicious:<rule id>. Absent: none.',
  );

export const healthStatus = z
  .enum(HEALTH_STATES)
  .describe(
    'ok: it speaks MCP. needs_sign_in: it answers, and requires a sign-in or a key. not_mcp: it answers, but not in MCP. unreachable: no answer, or HTTP 5xx.',
  );

/** The health of a server, as its last check found it. */
export const shownHealth = z.object({
  status: healthStatus,
  checked_at: z.iso.datetime().describe('When the server was last visited.'),
  latency_ms: z
    .int()
    .min(0)
    .optional()
    .describe(
      'Milliseconds from the first request of the visit to its list of tools. Absent: there was no answer.',
    ),
});

export const queryLogId = z
  .string()
  .max(64)
  .optional()
  .describe(
    'The query_log_id of the search that led here: what becomes of the call is noted there. One that does not fit is ignored.',
  );

/** Drops members that are null: some models send null for what they leave out. */
export const withoutNulls = (given: Readonly<Record<string, unknown>>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null));

/** Returns the JSON Schema of what a schema takes, or of what it gives. */
export function toJsonSchema(schema: z.ZodType, io: 'input' | 'output'): Record<string, unknown> {
  const { $schema: _dialect, ...json } = z.toJSONSchema(schema, { io });
  return json;
}

/** A key of the client's own choice under which a lost answer can be had again. */
export const idempotencyKey = z
  .string()
  .regex(/^[\x21-\x7e]{1,255}$/, 'must be 1 to 255 visible ASCII characters')
  .optional();

/**
 * Checks a value against a schema.
 * @param whole names the value in an error
 * @throws SwitchboardError 400 `invalid_request` that names the fields at fault.
 */
export function parseInput<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  whole = 'The body',
): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new SwitchboardError('invalid_request', inWords(parsed.error.issues, whole));
}
