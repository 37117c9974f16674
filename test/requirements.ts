/**
 * Every promise of the wire contract by id. A test names the promises it proves in its title, `[search.limit]`;
 * test/requirements.test.ts fails on an id that no test names and that does not wait for an issue.
 */
interface Requirement {
  readonly promise: string;
  /** The issue that will build it. */
  readonly waitsFor?: 4 | 5 | 6;
}

export const requirements: Readonly<Record<string, Requirement>> = {
  'access.key.required': { promise: 'every endpoint of /v1 needs X-API-Key; without one 401' },
  'access.key.invalid': {
    promise: 'an invalid key is 401: unknown, malformed, wrong checksum, revoked, expired, sent twice',
  },
  'access.before-routing': {
    promise: 'authentication comes before routing: an unknown path without a key is 401',
  },
  'access.rate-limit': { promise: 'over the limit is 429 on every endpoint but the two session ones' },
  'access.order': {
    promise:
      'on every face a request is checked in one order: key, scope, rate limit, input, monthly quota, live user',
  },
  'access.bearer-is-not-a-key': { promise: 'the REST API reads the key from X-API-Key only' },

  'search.request': { promise: 'POST /v1/search takes query and limit' },
  'search.query.length': { promise: 'query has 1 to 1000 characters, else 400' },
  'search.limit': { promise: 'limit is 1 to 50, default 10, else 400' },
  'search.server': { promise: 'a server has id, name, description, remote_url, tools, scores, final_score' },
  'search.tool': { promise: 'a tool in a search result has name, description, input_schema' },
  'search.scores': { promise: 'scores.semantic and scores.popularity lie in 0..1' },
  'search.ranked': { promise: 'servers are ranked by relevance: final_score never rises down the list' },
  'search.metadata': {
    promise: 'metadata has latency_ms and total_candidates as integers, cache_hit, query_log_id',
  },
  'search.cache-hit': { promise: 'cache_hit says whether the results came from cache' },
  'search.query-log-id': { promise: 'query_log_id is unique to the query' },
  'search.catalogue-size': { promise: 'the catalogue holds more than 490 servers' },
  'search.abstains': {
    promise: 'a request that nothing in the catalogue can serve is answered with an empty list',
  },
  'search.meaning': { promise: 'results are ranked by semantic similarity' },
  'search.popularity': { promise: 'popularity is based on usage' },
  'search.health': {
    promise:
      'a server that was visited has health (status, checked_at, latency_ms), and a dead one ranks lower',
  },
  'catalogue.dead': { promise: 'a server that is dead for 30 days is 410 until it answers again' },
  'search.feedback': { promise: 'query_log_id is useful for feedback' },
  'search.feedback.own': {
    promise:
      'feedback names a search of the tenant of the last 30 days (else 404), a server of its answer, and a tool that the server has where its tools are known (else 400)',
  },
  'search.feedback.calls': { promise: 'a proxied call that carries a query_log_id is joined to that search' },
  'search.success': { promise: 'of servers as relevant, those that work come before those that fail' },

  'call.request': {
    promise: 'POST /v1/mcp/call takes server_id, method, params?, id? (string or number, default 1)',
  },
  'call.id-echo': { promise: 'the JSON-RPC id is echoed with its type' },
  'call.result': { promise: 'success is 200 with jsonrpc 2.0 and result' },
  'call.upstream-error': { promise: "the server's JSON-RPC error is passed on with its code and message" },
  'call.sse': { promise: 'event-stream responses are buffered into one JSON response' },
  'call.methods': { promise: 'tools, resources and prompts methods pass through' },
  'call.not-found': { promise: 'an unknown server is 404' },
  'call.inactive': { promise: 'a server that is no longer active is 410' },
  'call.timeout': {
    promise: 'a time-out is code -32000 with a message that says the request to the MCP server timed out',
  },
  'call.unreachable': { promise: 'a connection failure is code -32000' },
  'call.parse-error': { promise: 'invalid JSON is -32700' },
  'call.invalid-request': { promise: 'an invalid request is -32600' },
  'call.invalid-params': { promise: 'invalid params are -32602' },
  'call.method-not-found': { promise: 'an unknown method is -32601' },
  'call.internal': { promise: 'an internal error is -32603' },

  'tools-call.request': { promise: 'POST /v1/mcp/tools/call takes server_id, name, arguments?' },
  'tools-call.result': { promise: 'the result has content and isError' },
  'tools-call.content': { promise: 'content blocks are text, image or resource' },
  'tools-call.is-error': { promise: 'a tool that reports an error is 200 with isError true' },
  'tools-call.failed': { promise: 'a tool execution that failed is 502 with detail' },
  'tools-call.not-found': { promise: 'an unknown server is 404, an inactive one 410, with detail' },

  'tools-list.request': { promise: 'POST /v1/mcp/tools/list takes server_id' },
  'tools-list.result': { promise: 'tools have name, description and inputSchema' },
  'tools-list.failed': { promise: 'an MCP server error is 502' },
  'tools-list.not-found': { promise: 'an unknown server is 404, an inactive one 410' },

  'results.request': {
    promise:
      'GET /v1/results/{handle} takes offset and max_chars, or find and from; a wrong one is 400 with its name',
  },
  'results.read': {
    promise: 'a kept result is read on in parts by offset, in code points, to its end',
  },
  'results.find': {
    promise: 'lines of a kept result are found by plain text, with the offset to read on from',
  },
  'results.own': {
    promise:
      'a kept result is there for 10 minutes, for its key and user alone, and 404 after that and for all others',
  },

  'mcp.verbatim': {
    promise: 'what a client of /mcp may show its model is what the server itself would have shown',
  },
  'mcp.stable-list': { promise: 'the text of tools/list does not change with the catalogue' },
  'mcp.unknown-tool': { promise: 'the first call by a wrong tool name is answered with the right ones' },
  'mcp.server-tools': { promise: 'search_servers with server_id gives the tools that the server lists now' },
  'mcp.read-on': { promise: 'a result that was cut ends with the call that reads on, to its end' },
  'mcp.read-tool': {
    promise: 'read_remote_tool is off by default, and calls only what its server marks as read-only',
  },
  'mcp.last-search': {
    promise: 'a call is joined to the last search of its key, user and session, if that found the server',
  },

  'errors.detail': { promise: 'an error body has detail, a string' },
  'errors.own-words': {
    promise: 'what is wrong with an input is said in our own words: where, what was expected, what was found',
  },
  'errors.documented': {
    promise: 'whatever is sent, the answer is one that /openapi.json names for the operation, and no 500',
  },
  'errors.short': { promise: 'an error does not send back all that came' },
  'errors.no-html': { promise: 'every body is JSON' },

  'identity.sessions.create': {
    promise: 'POST /v1/identity/sessions gives session_id, auth_url, expires_at',
  },
  'identity.sessions.provider': { promise: 'an unsupported provider is refused' },
  'identity.sessions.lifetime': { promise: 'a session expires 5 minutes after creation' },
  'identity.sessions.poll': {
    promise: 'GET /v1/identity/sessions/{id} gives status and, on error, error',
  },
  'identity.sessions.complete': {
    promise: 'an authorization granted completes the session and stores the tokens',
  },
  'identity.sessions.denied': {
    promise: 'an authorization denied ends the session in error with a message',
  },
  'identity.sessions.single-use': {
    promise: 'no polling after complete or error has been received',
  },
  'identity.proxy': { promise: 'after complete, proxied requests on behalf of the user work' },
  'identity.providers': { promise: 'one user can have several providers connected' },
  'identity.refresh': { promise: 'refresh gives a new token set with token_type Bearer' },
  'identity.refresh.single-use': {
    promise: 'a refresh token works once; reuse is 400 invalid_grant',
  },
  'identity.refresh.errors': { promise: 'refresh errors are 400, 401 and 429 with detail' },
  'identity.revoke': {
    promise: "revoke ends all of a user's tokens at once and gives success true",
  },
  'identity.revoke.user-id': { promise: 'an invalid user_id is 400' },
  'identity.vault': { promise: 'provider tokens are stored encrypted and never returned' },
  'identity.needs-key': { promise: 'the identity endpoints need the API key too' },

  'admin.scope': {
    promise:
      'what an operator does on the control socket can be done under /v1/admin with a key of the scope admin, which does nothing else',
  },
  'admin.browsers': { promise: 'no page of another origin reaches /v1/admin' },
  'admin.same': { promise: 'wrong input is refused in the same words on the control socket and /v1/admin' },
  'admin.input': {
    promise: 'no wrong path, method, field, size or character under /v1/admin is more than a refusal',
  },
  'admin.keys': { promise: 'keys are made, changed, rotated and revoked; a key is shown once' },
  'admin.tenants': { promise: 'tenants are listed, shown and changed' },
  'admin.catalogue': {
    promise: 'a catalogue is imported as it comes, or synced; servers are shown and deactivated',
  },
  'admin.audit': {
    promise: 'every change is in the audit log with the key that made it; a crash leaves both or neither',
  },
  'admin.pages': { promise: 'usage and audit are given in pages' },
  'quota.refused': {
    promise: 'a key past its monthly quota is 429 with the quota, when it begins anew and Retry-After',
  },
  'quota.headers': { promise: 'what is left of a quota is in RateLimit and RateLimit-Policy' },
  'quota.faces': { promise: 'both faces, and the pass-through, count into one quota' },
  'quota.durable': { promise: 'a kill loses at most the last second of what was counted' },
  'quota.shared': { promise: 'processes on one database share a count within seconds' },
  'quota.change': { promise: 'a quota is set at creation, changed later and kept by a rotation' },

  'versioning.path': { promise: 'every endpoint sits under /v1' },
};

/**
 * The acceptance list of identity: cases 1 to 104, each a test of its own under test/core/identity, named by its number. Absent:
 * 52 (mode `caller`, not built) and 97 (dropped: a server trusted with a token may show it).
 */
export const identityCases: readonly number[] = Array.from({ length: 104 }, (_, at) => at + 1).filter(
  number => number !== 52 && number !== 97,
);
