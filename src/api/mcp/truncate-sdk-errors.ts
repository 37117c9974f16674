import type { McpHttpHandler } from '@modelcontextprotocol/server';
import { z } from 'zod';
import { sanitise } from '../../platform/sanitize.ts';

type Fetch = McpHttpHandler['fetch'];

const MAX_CHARS = 300;

const refusal = z.looseObject({ error: z.unknown() });
const shorter = (_key: string, value: unknown): unknown =>
  typeof value === 'string' ? sanitise(value, MAX_CHARS) : value;

/** The SDK's refusals quote versions, methods and names as they came, in headers or a message, however long those were. */
export const shortErrors =
  (fetch: Fetch): Fetch =>
  async (request, options) => {
    const response = await fetch(request, options);
    if (response.status < 400 || !response.headers.get('content-type')?.startsWith('application/json'))
      return response;
    const message = refusal.safeParse(await response.clone().json());
    if (!message.success) return response;
    // Not the id, by which its caller knows the answer.
    const error: unknown = JSON.parse(JSON.stringify(message.data.error), shorter);
    const headers = new Headers(response.headers);
    headers.delete('content-length');
    return new Response(JSON.stringify({ ...message.data, error }), { status: response.status, headers });
  };
