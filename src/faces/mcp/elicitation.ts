import {
  CLIENT_CAPABILITIES_META_KEY,
  type McpHttpHandler,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { z } from 'zod';

/** How a client can be asked to open a URL (2025-11-25: an error of its own; 2026-07-28: a result that asks for input). */
export type UrlElicitation = 'error' | 'input-required';

type Fetch = McpHttpHandler['fetch'];

const SESSION_HEADER = 'mcp-session-id';
/** As a session id: that the client can be asked to open a URL. */
const CAN_OPEN_URLS = 'elicitation-url';

const capabilities = z.object({ elicitation: z.object({ url: z.looseObject({}) }) });
const initialize = z.object({
  method: z.literal('initialize'),
  params: z.object({ capabilities }),
});
const envelope = z.object({ [CLIENT_CAPABILITIES_META_KEY]: capabilities });

/**
 * Clients of revisions 2025-xx say once, to initialize, what they can do, and nothing here lasts from one request to the
 * next. So those that can open URLs get a session id that says just that, and send it with every later request. It opens
 * nothing: there is no session behind it.
 */
export const rememberingUrlElicitation =
  (fetch: Fetch): Fetch =>
  async (request, options) => {
    // With a version, it has been negotiated: this is not initialize.
    if (request.method !== 'POST' || request.headers.has('mcp-protocol-version'))
      return fetch(request, options);
    const response = await fetch(request, options);
    if (response.ok && initialize.safeParse(options?.parsedBody).success)
      response.headers.set(SESSION_HEADER, CAN_OPEN_URLS);
    return response;
  };

/** How the client of this request can be asked to open a URL, if it said that it can. */
export function urlElicitationOf(
  era: 'legacy' | 'modern',
  headers: Headers | undefined,
  context: ServerContext,
): UrlElicitation | undefined {
  if (era === 'legacy') return headers?.get(SESSION_HEADER) === CAN_OPEN_URLS ? 'error' : undefined;
  return envelope.safeParse(context.mcpReq.envelope).success ? 'input-required' : undefined;
}
