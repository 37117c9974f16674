/**
 * The closed list of errors. Each face renders them in its own way: REST as problem details (RFC 9457),
 * JSON-RPC as an error object, the MCP face as a tool result with `isError`.
 */
interface ErrorKind {
  /** HTTP status for REST; on `POST /v1/mcp/call` an upstream failure is 200 instead (see `isUpstreamFailure`). */
  readonly status: number;
  /** JSON-RPC code on `POST /v1/mcp/call`. */
  readonly rpc: number;
  readonly title: string;
  /** Whether the same request may succeed later, unchanged. */
  readonly retryable?: true;
  /** The `error` of OAuth 2.0 (RFC 6749 §5.2, RFC 6750 §3.1), if the response has one. */
  readonly oauth?: string;
}

const KINDS = {
  invalid_json: { status: 400, rpc: -32700, title: 'Invalid JSON' },
  invalid_request: { status: 400, rpc: -32600, title: 'Invalid request' },
  invalid_params: { status: 400, rpc: -32602, title: 'Invalid params' },
  unauthorized: { status: 401, rpc: -32000, title: 'Missing or invalid API key' },
  identity_token_required: {
    status: 401,
    rpc: -32000,
    title: 'Identity token required',
    oauth: 'invalid_token',
  },
  identity_token_invalid: {
    status: 401,
    rpc: -32000,
    title: 'Identity token invalid',
    oauth: 'invalid_token',
  },
  invalid_grant: { status: 400, rpc: -32602, title: 'Invalid grant', oauth: 'invalid_grant' },
  authorization_pending: {
    status: 400,
    rpc: -32602,
    title: 'Authorization pending',
    oauth: 'authorization_pending',
  },
  connection_required: { status: 403, rpc: -32000, title: 'A connection with the server is required' },
  operator_setup_needed: { status: 403, rpc: -32000, title: 'The operator must set up the sign-in first' },
  credentials_rejected: { status: 400, rpc: -32000, title: 'The server refused the credentials' },
  insufficient_scope: { status: 403, rpc: -32000, title: 'The API key lacks a scope' },
  host_not_allowed: { status: 403, rpc: -32000, title: 'Host or Origin not allowed' },
  route_not_found: { status: 404, rpc: -32601, title: 'No such endpoint' },
  server_not_found: { status: 404, rpc: -32000, title: 'Server not found' },
  query_not_found: { status: 404, rpc: -32000, title: 'Search not found' },
  session_not_found: { status: 404, rpc: -32000, title: 'Authorization session not found' },
  result_not_found: { status: 404, rpc: -32000, title: 'Kept result not found' },
  mcp_session_not_found: { status: 404, rpc: -32000, title: 'MCP session not found' },
  session_delivered: { status: 410, rpc: -32000, title: 'Final status already delivered' },
  key_not_found: { status: 404, rpc: -32000, title: 'API key not found' },
  method_not_allowed: { status: 405, rpc: -32600, title: 'Method not allowed' },
  not_acceptable: { status: 406, rpc: -32600, title: 'Not acceptable' },
  server_inactive: { status: 410, rpc: -32000, title: 'Server is no longer active' },
  payload_too_large: { status: 413, rpc: -32600, title: 'Request body too large' },
  unsupported_media_type: { status: 415, rpc: -32600, title: 'Unsupported media type' },
  rate_limited: { status: 429, rpc: -32000, title: 'Rate limit exceeded', retryable: true },
  quota_exceeded: { status: 429, rpc: -32000, title: 'Monthly quota used up' },
  internal: { status: 500, rpc: -32603, title: 'Internal server error' },
  unavailable: { status: 503, rpc: -32000, title: 'Temporarily unavailable', retryable: true },
  provider_not_configured: { status: 503, rpc: -32000, title: 'Identity provider not configured' },
  provider_unavailable: {
    status: 502,
    rpc: -32000,
    title: 'Sign-in service unavailable',
    retryable: true,
  },
  upstream_timeout: { status: 502, rpc: -32000, title: 'MCP server timed out', retryable: true },
  upstream_unreachable: { status: 502, rpc: -32000, title: 'MCP server unreachable', retryable: true },
  upstream_unavailable: { status: 502, rpc: -32000, title: 'MCP server unavailable', retryable: true },
  upstream_unauthorized: { status: 502, rpc: -32000, title: 'MCP server requires a sign-in' },
  upstream_forbidden: { status: 502, rpc: -32000, title: 'MCP server refused access' },
  upstream_rate_limited: {
    status: 502,
    rpc: -32000,
    title: 'MCP server rate limit exceeded',
    retryable: true,
  },
  upstream_http_error: { status: 502, rpc: -32000, title: 'MCP server returned an HTTP error' },
  upstream_protocol: { status: 502, rpc: -32000, title: 'MCP server violated the protocol' },
  upstream_too_large: { status: 502, rpc: -32000, title: 'MCP server sent too much' },
  upstream_blocked: { status: 502, rpc: -32000, title: 'MCP server address not allowed' },
  upstream_input_required: { status: 502, rpc: -32000, title: 'The tool asks for input' },
  upstream_error: { status: 502, rpc: -32000, title: 'MCP server reported an error' },
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof KINDS;

export const errorKind = (code: ErrorCode): ErrorKind => KINDS[code];

export const errorCodes = Object.keys(KINDS) as ErrorCode[];

/** The errors of a catalogued server, or of the identity provider it needs. */
export const UPSTREAM_ERRORS: readonly ErrorCode[] = errorCodes.filter(
  code => code.startsWith('upstream_') || code === 'provider_unavailable',
);

/** Advice that ends an error, for its reader. */
export interface Advice {
  readonly caller: string;
  /** For the command line, which only the operator uses. */
  readonly operator: string;
}

/** Returns advice that only the operator can follow. @param what begins with a verb */
export const askOperator = (what: string): Advice => ({
  caller: `Ask the operator to ${what}`,
  operator: `${what.charAt(0).toUpperCase()}${what.slice(1)}`,
});

export interface ErrorExtras {
  /** Seconds to wait before retrying. */
  readonly retryAfterSec?: number;
  /** The upstream's own JSON-RPC error object, passed on unchanged. */
  readonly upstreamError?: unknown;
  /** Overrides the code's default: a call that may have run must not be repeated blindly. */
  readonly retryable?: boolean;
  /** The timeout after which the call was ended, in milliseconds. */
  readonly timeLimitMs?: number | undefined;
  /** Sentences to follow the text, where the operator is told others than callers. */
  readonly advice?: Advice | undefined;
  /** Additional members of the response, such as where a user can connect an account. */
  readonly members?: Readonly<Record<string, unknown>>;
  /** The internal reason: logged, never shown. */
  readonly cause?: unknown;
}

/** An error with a text for the caller, which says what was wrong and what to do. */
export class SwitchboardError extends Error {
  readonly code: ErrorCode;
  readonly retryAfterSec: number | undefined;
  readonly timeLimitMs: number | undefined;
  readonly upstreamError: unknown;
  readonly members: Readonly<Record<string, unknown>>;
  /** The text for the operator, at the command line. */
  readonly operatorDetail: string;
  /** Whether the same request may be repeated unchanged and may then succeed. */
  readonly retryable: boolean;

  constructor(code: ErrorCode, detail: string, extras: ErrorExtras = {}) {
    const { advice, cause } = extras;
    super(advice ? `${detail} ${advice.caller}` : detail, cause === undefined ? {} : { cause });
    this.name = 'SwitchboardError';
    this.code = code;
    this.retryAfterSec = extras.retryAfterSec;
    this.timeLimitMs = extras.timeLimitMs;
    this.upstreamError = extras.upstreamError;
    this.members = extras.members ?? {};
    this.operatorDetail = advice ? `${detail} ${advice.operator}` : detail;
    this.retryable = extras.retryable ?? errorKind(code).retryable ?? false;
  }

  get detail(): string {
    return this.message;
  }

  get status(): number {
    return errorKind(this.code).status;
  }

  get rpcCode(): number {
    return errorKind(this.code).rpc;
  }

  /** True if the catalogued server, or the identity provider it needs, failed, rather than Switchboard or the caller. */
  get isUpstreamFailure(): boolean {
    return UPSTREAM_ERRORS.includes(this.code);
  }
}

/** Converts any thrown value to a SwitchboardError; unexpected ones become `internal` and keep their cause for the log. */
export function toSwitchboardError(thrown: unknown): SwitchboardError {
  if (thrown instanceof SwitchboardError) return thrown;
  return new SwitchboardError('internal', 'An internal error occurred. Search the log for the request id.', {
    cause: thrown,
  });
}
