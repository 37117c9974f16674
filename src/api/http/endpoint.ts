import { z } from 'zod';
import type { RateClass } from '../../config/index.ts';
import type { Policy, Throttle } from '../../core/access/admit.ts';
import type { Caller } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import { type ErrorCode, SwitchboardError } from '../../errors.ts';
import { sanitise, codePointsIn } from '../../platform/sanitize.ts';
import { HEALTH_STATES } from '../../core/catalogue/health.ts';
import { isObject, isStorable } from '../../platform/json/limits.ts';
import { MAX_FIND_CHARS } from '../../core/results/results.ts';
import { inWords } from '../../platform/zod-issues.ts';

export const NDJSON = 'application/x-ndjson';
export const KIB = 1024;
export const MIB = 1024 * KIB;

type PathParams = Readonly<Record<string, string>>;

interface EndpointBase extends Omit<Policy, 'rateLimit'> {
  readonly method: 'post' | 'put' | 'get';
  /** For a GET that changes something: HEAD is refused. */
  readonly onlyGet?: true;
  /** The path with named parameters, such as `/v1/identity/sessions/:session_id`. */
  readonly path: string;
  readonly operationId: string;
  readonly tag: 'Search' | 'Proxy' | 'Identity' | 'Registry' | 'Admin';
  readonly summary: string;
  readonly description: string;
  /** The rate limit class of the request, or a custom limit. Absent: none. */
  readonly rateLimit?: RateClass | ((params: PathParams) => Throttle) | undefined;
  readonly maxBodyBytes: number;
  /** `no-store`: responses contain secrets or private data. */
  readonly cache?: 'no-store';
  /** Accepts the header Switchboard-Timeout-Ms. */
  readonly timeoutHeader?: true;
  /** Accepts the header Idempotency-Key. */
  readonly idempotent?: true;
  /** The endpoint's errors, in addition to those of every endpoint. */
  readonly errors: readonly ErrorCode[];
  readonly querySchema?: z.ZodObject;
  readonly responseSchema: z.ZodType;
  /** The calls that the response makes possible, by name. */
  readonly links?: Readonly<Record<string, Link>>;
  /** The work may take long. A caller that accepts `application/x-ndjson` gets progress lines. */
  readonly isLong?: true;
}

/** A link from a response to the operation that it leads to. Values are runtime expressions (OpenAPI 3.1, Link Object). */
interface Link {
  readonly operationId: string;
  readonly description: string;
  /** Its parameters, by name. */
  readonly parameters?: Readonly<Record<string, string>>;
  /** The fields of its body that the response has, by name. */
  readonly requestBody?: Readonly<Record<string, string>>;
}

/** A validated request. */
export interface Input<Body = unknown, Query = unknown> {
  readonly body: Body;
  readonly params: PathParams;
  readonly query: Query;
  readonly idempotencyKey: string | undefined;
  /** When the request arrived, by the core's monotonic clock. */
  readonly arrivedMs: number;
  readonly progress: ProgressListener;
}

/** Long work on a body that is read as a stream. */
export interface StreamedBody {
  /** The accepted media types of the body. */
  readonly types: readonly string[];
  /** The error for a caller while another's body is read. */
  readonly busy: string;
  /**
   * Reads the whole body and returns the remaining work. If the caller's signal aborts, the work throws its reason.
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

/** One endpoint: its implementation and its OpenAPI documentation. */
export type Endpoint = EndpointBase &
  (
    | { readonly stream?: undefined; readonly bodySchema?: z.ZodType | undefined; readonly run: Run }
    | { readonly stream: StreamedBody; readonly bodySchema?: undefined }
  );

/** Binds the types of a handler to the schemas of its endpoint. */
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
    // The pipeline has parsed both with these schemas.
    run: (core, caller, input) => handle(core, caller, input as Input<z.output<Body>, z.output<Query>>),
  };
}

/** Reports progress. */
export interface ProgressListener {
  readonly onProgress: (progress: { readonly done: number; readonly of: number }) => void;
  /** Reports how many entries were read, while nobody knows how many there are. */
  readonly onListed: (entries: number) => void;
  /** Reports a sentence for people. */
  readonly onNotice: (notice: string) => void;
}

export const SILENT: ProgressListener = { onProgress: () => {}, onListed: () => {}, onNotice: () => {} };

interface Route {
  /** Absent: no endpoint accepts this method. */
  readonly endpoint: Endpoint | undefined;
  readonly params: PathParams;
  /** The methods that the path accepts, if there is no endpoint. Empty: the path does not exist. */
  readonly allowed: readonly string[];
}

export type FindRoute = (method: string, path: string) => Route;

/**
 * Returns a function that finds the endpoint of a request. Paths are matched byte for byte; GET endpoints also handle HEAD,
 * unless they are `onlyGet`. Throws `invalid_request` for a parameter that is not percent-encoded UTF-8.
 */
export function routerOf(endpoints: readonly Endpoint[]): FindRoute {
  const byPath = Map.groupBy(endpoints, ({ path }) => path);
  /** The segments of each path with parameters; a leading colon marks a name. */
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
    // A server may be called `import`: a method that the path itself does not accept may be meant for that server's entry.
    const atPattern = pattern ? (byPath.get(pattern.join('/')) ?? []) : [];
    const params = (pattern ?? []).flatMap((name, at) =>
      name.startsWith(':') ? [[name.slice(1), decode(segments[at] ?? '')] as const] : [],
    );
    const found = atPattern.find(one => takes(one, method));
    const allowed = found ? [] : [...new Set([...exact, ...atPattern].flatMap(methodsOf))];
    return { endpoint: found, params: Object.fromEntries(params), allowed };
  };
}

const takes = (one: Endpoint, method: string) =>
  one.method === (method === 'HEAD' && one.onlyGet !== true ? 'get' : method.toLowerCase());

const methodsOf = ({ method, onlyGet }: Endpoint): readonly string[] =>
  method === 'get' && onlyGet !== true ? ['GET', 'HEAD'] : [method.toUpperCase()];

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch (cause) {
    throw new SwitchboardError(
      'invalid_request',
      `The path contains ${sanitise(segment)}, which is not valid percent-encoding.`,
      { cause },
    );
  }
}

/** Words the error for a value that is missing or has a wrong type, if the type alone is not enough. */
export const wrongType = (mustBe: string) => ({
  error({ code, input }: { readonly code: string; readonly input: unknown }) {
    if (code !== 'invalid_type') return undefined;
    return input === undefined ? `is missing; it ${mustBe}` : mustBe;
  },
});

/** The query of a search. Its length is counted in Unicode code points. */
export const queryText = z
  .string(wrongType('must be a string of 1 to 1000 characters'))
  .refine(text => text.trim() !== '', 'must not be empty: describe what you want to do in plain words')
  .refine(text => codePointsIn(text) <= 1000, {
    error: issue => `must have at most 1000 characters, not ${codePointsIn(String(issue.input))}`,
  })
  .meta({
    minLength: 1,
    maxLength: 1000,
    description: 'What you want to do, in plain words. Its length is counted in Unicode code points.',
    examples: ['create an issue in our bug tracker'],
  });

export const searchLimit = z
  .int(wrongType('must be a whole number from 1 to 50'))
  .min(1)
  .max(50)
  .default(10)
  .describe('Servers at most.');

const FIND = `must be a string of 1 to ${MAX_FIND_CHARS} characters: the text to look for`;

/** The text to find in a stored result. Its length is counted in Unicode code points. */
export const findText = z
  .string(wrongType(FIND))
  .refine(text => text !== '' && codePointsIn(text) <= MAX_FIND_CHARS, FIND)
  .meta({ minLength: 1, maxLength: MAX_FIND_CHARS });

/** Refuses contradictory fields: a stored result is either read from `offset` or searched for `find`, starting at `from`. */
export function checkReadOrFind(
  { offset, find, from }: { readonly offset?: unknown; readonly find?: unknown; readonly from?: unknown },
  context: z.RefinementCtx,
): void {
  const refuse = (field: string, message: string) => {
    context.addIssue({ code: 'custom', path: [field], message });
  };
  if (find !== undefined && offset !== undefined)
    refuse('offset', 'cannot be combined with find: use from to set where the search starts');
  if (find === undefined && from !== undefined)
    refuse('from', 'requires find: use offset to set where to continue reading');
}

/** Accepts any object: zod's own record drops a member named __proto__. */
export const jsonObject = z
  .unknown()
  .refine(isObject, 'must be a JSON object')
  .meta({ type: 'object', additionalProperties: {} });

/** Refuses text that a database cannot be asked for. */
export const storable = (schema: z.ZodString) =>
  schema
    .refine(isStorable, 'must not contain a NUL character or an unpaired surrogate')
    .meta({ pattern: String.raw`^[^\x00]*$` });

/** A whole number in a query string, from 0 to 999,999,999. The document shows the number, not its text. */
export const queryNumber = (mustBe: string, { min = 0, max = 999_999_999 } = {}) =>
  z
    .string(wrongType(mustBe))
    .refine(text => /^[0-9]{1,9}$/.test(text) && Number(text) >= min && Number(text) <= max, mustBe)
    .transform(Number)
    .meta({ type: 'integer', minimum: min, maximum: max });

export const serverId = storable(
  z.string(wrongType('must be a string: a server id from POST /v1/search')).min(1).max(256),
).describe("The server's id, from a search.");

/** Warnings on a tool's definition: see docs/tools.md. */
export const toolWarnings = z
  .array(z.string())
  .optional()
  .describe(
    'Warnings to consider before calling the tool: definition_changed (within the last 7 days), suspicious:<rule id>. Absent: none.',
  );

export const healthStatus = z
  .enum(HEALTH_STATES)
  .describe(
    'ok: it speaks MCP. needs_sign_in: it requires a sign-in or a key. not_mcp: its responses are not MCP. unreachable: no response, or HTTP 5xx.',
  );

/** How a server can be called. */
export const shownAccess = z.object({
  kind: z
    .enum(['none', 'credentials', 'oauth', 'provider', 'unknown'])
    .describe(
      'What a caller needs: nothing, a key or header, a sign-in at the server, or a token from an identity provider configured here.',
    ),
  status: z
    .enum(['open', 'connected', 'connect', 'setup_needed', 'unknown'])
    .describe(
      'connected: your calls carry what the server requires. connect: somebody must enter a key or sign in first. setup_needed: the server cannot be called from here yet. unknown: a call will tell.',
    ),
});

/** The health of a server, from its last check. */
export const shownHealth = z.object({
  status: healthStatus,
  checked_at: z.iso.datetime().describe('When the server was last checked.'),
  latency_ms: z
    .int()
    .min(0)
    .optional()
    .describe(
      'Milliseconds from the first request of the check to the list of tools. Absent: there was no response.',
    ),
});

export const queryLogId = z
  .string()
  .max(64)
  .optional()
  .describe(
    'The query_log_id of the search that led to this call, to record whether the call worked. An unknown id is ignored.',
  );

/** Drops null members: some models send null for omitted values. */
export const withoutNulls = (given: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> =>
  Object.values(given).includes(null)
    ? Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null))
    : given;

/**
 * Returns the JSON Schema of a schema's input or output. Dates and times have a format, which every language knows, instead of
 * zod's long pattern.
 */
export function toJsonSchema(schema: z.ZodType, io: 'input' | 'output'): Record<string, unknown> {
  const { $schema: _dialect, ...json } = z.toJSONSchema(schema, {
    io,
    override({ jsonSchema }) {
      if (jsonSchema.format === 'date' || jsonSchema.format === 'date-time') delete jsonSchema.pattern;
    },
  });
  return json;
}

/** A key chosen by the client for repeating a request after a lost response. */
export const idempotencyKey = z
  .string()
  .regex(/^[\x21-\x7e]{1,255}$/, 'must be 1 to 255 visible ASCII characters')
  .optional();

/**
 * Validates a value against a schema.
 * @param whole names the value in an error
 * @throws SwitchboardError 400 `invalid_request` that names the invalid fields
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
