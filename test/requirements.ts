/**
 * Every promise of the wire contract by id. A test names the promises it proves in its title, `[search.limit]`;
 * test/requirements.test.ts fails on an id that no test names.
 */
interface Requirement {
  readonly promise: string;
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
  'console.session': {
    promise:
      'an admin key becomes a session of one browser; its cookie is HttpOnly and Strict, and nothing is stored in clear',
  },
  'console.link': { promise: 'a link of the command line signs one browser in, once, within five minutes' },
  'console.end': { promise: 'a session ends idle, after twelve hours, with its key, and by signing out' },
  'console.csrf': {
    promise: 'the cookie counts only in requests of the page itself, and only for the admin API',
  },
  'console.role': { promise: 'admin_read reads the admin API, tries searches, and changes nothing' },
  'console.processes': { promise: 'a session and its end hold for all processes on one database' },
  'console.files': { promise: 'the page loads only its own files, under a policy without inline scripts' },
  'console.catalogue': { promise: 'servers are listed with filters, in pages' },
  'console.entry': { promise: 'an entry is added, changed and activated, and wrong fields are named' },
  'console.search': { promise: 'a search is tried, and says where one server ranks or why it is missing' },
  'console.connections': { promise: 'connections of all tenants are listed and ended' },
  'console.lists': { promise: 'keys and tenants are found by text and given in pages' },
  'console.audit': { promise: 'the audit log can be followed' },
  'console.refusals': { promise: 'operators see which requests are refused, and no request fills the log' },
  'console.setup': { promise: 'what is set up for sign-ins is shown, and what is missing, without secrets' },
  'console.overview': { promise: 'the overview says what happens and what needs attention' },
  'console.scale': { promise: 'lists of thousands are given in pages of bounded size' },

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
 * The promises of identity by number. Each has a test under test/core/identity whose title begins with the number. 97 was
 * dropped: a server that is trusted with a token may show it.
 */
export const identityPromises: Readonly<Record<number, string>> = {
  1: 'a request without an API key is 401',
  2: 'a key with a wrong checksum is 401 without a query',
  3: 'a revoked key is 401 on the next request to the same process, and within 2 s on others',
  4: 'an expired key is 401',
  5: 'a key counts in X-API-Key alone, not in the query, a cookie or Authorization; /mcp also takes it as a Bearer token',
  6: 'two X-API-Key headers are 401',
  7: 'a key with line breaks or non-ASCII characters is 400 or 401, and nothing crashes',
  8: 'a key without the scope of the endpoint is 403',
  9: 'the 401 of an unknown, revoked or malformed key has the same body',
  10: 'a rotated key works beside its successor for the overlap, then it is 401',
  11: 'a copy of the database holds no key, token or verifier in clear text',
  12: '60 wrong keys from one address lead to 429 with Retry-After; good keys are not affected',
  13: 'creating a session gives exactly three fields, and expires_at lies 300 s ahead',
  14: 'a missing or empty user_id is 400',
  15: 'an unknown provider is 400',
  16: 'a user_id that is no string is 400',
  17: 'a user_id of 1025 bytes is 400, one of 1024 bytes is accepted',
  18: 'a user_id with a NUL is 400',
  19: 'a user_id with a lone surrogate is 400, so two users never become one',
  20: 'a body that is not UTF-8 is 400',
  21: 'hostile strings are refused or stored as they are, without effect on others',
  22: 'user ids that differ by case or normal form are different users',
  23: 'fields named __proto__ or constructor pollute nothing',
  24: 'a body that is not JSON is 400',
  25: 'an identity body over 64 KiB is 413',
  26: 'a body of another media type or charset is 415',
  27: 'a body nested 50,000 levels deep is 400 or 413',
  28: 'a compressed bomb is 413 or 400',
  29: 'auth_url has an S256 challenge, state, nonce and our exact callback; two sessions share none of them',
  30: 'an identity provider without metadata is 503 in less than 6 s',
  31: 'the 11th session of one user within a minute is 429',
  32: 'after full consent a session is complete, once, then 410',
  33: 'after a refusal a session is in error access_denied, once, then 410',
  34: 'the same callback a second time is 400 and changes nothing',
  35: '50 parallel callbacks exchange the code once',
  36: 'a forged state is 400',
  37: 'the state of one provider at the callback of another is 400',
  38: 'a wrong iss, an absent iss that the provider advertises, or a repeated parameter fails the sign-in',
  39: "the code of another user's sign-in fails (PKCE)",
  40: 'a wrong nonce, or an id_token with a wrong algorithm, key, audience or time, fails the sign-in',
  41: 'a code that was used before fails in another session',
  42: 'a callback after 5 minutes is 400 without an exchange, and the session ends in error',
  43: 'HEAD at the callback claims nothing',
  44: 'a token endpoint that fails, hangs or answers nonsense fails the session in less than 6 s',
  45: "the provider's own words reach no page, header or log",
  46: 'a return_url that is not registered is 400, whatever trick it uses',
  47: 'every page has a strict content security policy, is not stored, sends no referrer and loads nothing',
  48: "polling another tenant's session is 404 and consumes nothing",
  49: 'of 50 parallel polls after completion one is 200, the others are 410',
  50: 'a process killed between claim and exchange leaves a session that is interrupted within 65 s',
  51: 'a process killed between exchange and commit leaves no half connection',
  52: 'a sign-in of mode caller completes only when the app of its tenant confirms it, once, for its user',
  53: 'a sign-in of mode page cannot be finished in another browser',
  54: 'reconnecting with another account fails with account_mismatch',
  55: 'tokens asked for before completion are 400 authorization_pending',
  56: 'after completion a session is redeemed for a token set',
  57: 'a session redeemed a second time is 400 invalid_grant',
  58: 'of 50 parallel redemptions one gives tokens',
  59: "another tenant's session cannot be redeemed",
  60: 'a session cannot be redeemed 11 minutes after completion',
  61: 'a redemption repeated with its Idempotency-Key has the same answer',
  62: 'a refresh gives a new pair, and the answer is not stored',
  63: 'a refresh token used again after 3 s ends its family',
  64: 'of 50 parallel refreshes one wins, and its tokens work',
  65: '50 parallel refreshes with one Idempotency-Key get one answer',
  66: 'a used refresh token with another Idempotency-Key is 400, and reuse after the race window',
  67: 'an answer is not given again once its successor was used, or after 60 s',
  68: 'an older token of the line used again ends the family at once',
  69: 'a refresh token is 400 after 30 days unused, or 90 days after the sign-in',
  70: "another tenant's refresh token is 400 and stays usable for its own",
  71: 'anything else given as a refresh token is 400, or 413 if too large',
  72: 'a process killed during a refresh loses no sign-in: before the commit the token still works, after it the Idempotency-Key recovers',
  73: 'a database that is down makes a refresh 503, never 400, and the token works afterwards',
  74: 'two processes on one database rotate and detect reuse as one does',
  75: 'an identity token with alg none is 401',
  76: 'an identity token signed by HMAC with the public key is 401',
  77: 'an identity token with an unknown or path-like kid is 401',
  78: 'keys that an identity token brings or points to are ignored',
  79: 'a token of another issuer, audience or type is 401',
  80: 'an identity token is accepted up to 5 s after its end, and no longer',
  81: 'an identity token is 401 with the key of another tenant',
  82: 'an identity token that was changed or is too large is 401',
  83: 'after a rotation of the signing keys old tokens stay valid until they expire',
  84: 'after a revocation the next call is 401 on every process',
  85: 'a provider token reaches the declared origin alone; a server without sign-in gets none',
  86: 'a server that redirects to another origin does not get the token, and the call is 502',
  87: "the caller's own credentials never reach a server",
  88: 'an expired provider token is refreshed once, however many calls need it',
  89: 'a grant that the provider has ended is 403 with where to sign in, and the provider is not asked again',
  90: 'a provider that hangs makes a call 502 in less than 6 s, and later calls work',
  91: 'a process killed during a provider refresh loses nothing before the provider answered; after it the user signs in again',
  92: 'a revocation during a provider refresh stores nothing, and the new token is revoked at the provider',
  93: 'a revocation ends tokens here and at the provider, and sign-ins under way',
  94: "revoking an unknown user or twice is 200, a malformed user_id 400; another tenant's user is not touched",
  95: 'a provider that does not take a revocation is asked again for an hour; the caller gets 200 at once',
  96: 'no log, error, header, metric or copy of the database holds a token, code, verifier or key in clear text',
  98: "a ciphertext moved to another user's row does not open",
  99: 'rewrapping under load survives a kill and loses nothing',
  100: 'starting with the wrong vault key is refused',
  101: "a provider's addresses in private networks are refused",
  102: 'a provider whose clock is 10 minutes off fails the sign-in and crashes nothing',
  103: 'a request with Content-Length and Transfer-Encoding is 400',
  104: 'slow clients are closed and hold no database connection',
};
