import { randomUUID } from 'node:crypto';
import {
  CLIENT_CAPABILITIES_META_KEY,
  type McpHttpHandler,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { z } from 'zod';

/** How a client can be asked to open a URL (2025-11-25: an error of its own; 2026-07-28: a result that asks for input). */
export type UrlElicitation = 'error' | 'input-required';

type Fetch = McpHttpHandler['fetch'];

export const SESSION_HEADER = 'mcp-session-id';
/** The start of a session id: whether the client can be asked to open a URL. */
const CAN_OPEN_URLS = 'elicitation-url.';
const CANNOT_OPEN_URLS = 'session.';
const SESSION_ID = /^(?:elicitation-url|session)\.[\da-f-]{36}$/;

/** Whether it looks like a session id given out here: unique to one client, if nobody made it up. */
export const isOwnSession = (id: string | null | undefined): id is string =>
  typeof id === 'string' && SESSION_ID.test(id);

const capabilities = z.object({ elicitation: z.object({ url: z.looseObject({}) }) });
const initialize = z.object({ method: z.literal('initialize') });
const opensUrls = z.object({ params: z.object({ capabilities }) });
const envelope = z.object({ [CLIENT_CAPABILITIES_META_KEY]: capabilities });

/**
 * Clients of revisions 2025-xx say once, to initialize, what they can do, and nothing here lasts from one request to the
 * next. So they get a session id that says whether they can open URLs, and send it with every later request; by it a call is
 * also found again that is to be cancelled. It opens nothing: there is no session behind it.
 */
export const givingSessionIds =
  (fetch: Fetch): Fetch =>
  async (request, options) => {
    // With a version, it has been negotiated: this is not initialize.
    if (request.method !== 'POST' || request.headers.has('mcp-protocol-version'))
      return fetch(request, options);
    const response = await fetch(request, options);
    const message = options?.parsedBody;
    if (response.ok && initialize.safeParse(message).success) {
      const kind = opensUrls.safeParse(message).success ? CAN_OPEN_URLS : CANNOT_OPEN_URLS;
      response.headers.set(SESSION_HEADER, kind + randomUUID());
    }
    return response;
  };

/** How the client of this request can be asked to open a URL, if it said that it can. */
export function urlElicitationOf(
  era: 'legacy' | 'modern',
  headers: Headers | undefined,
  context: ServerContext,
): UrlElicitation | undefined {
  if (era === 'legacy') return headers?.get(SESSION_HEADER)?.startsWith(CAN_OPEN_URLS) ? 'error' : undefined;
  return envelope.safeParse(context.mcpReq.envelope).success ? 'input-required' : undefined;
}
