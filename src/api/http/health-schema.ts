import { z } from 'zod';
import { HEALTH_STATES } from '../../core/catalogue/health.ts';

export const healthStatus = z
  .enum(HEALTH_STATES)
  .describe(
    'ok: it speaks MCP. needs_sign_in: it answers, and wants a sign-in or a key. not_mcp: what answers speaks no MCP. unreachable: no answer, or HTTP 5xx.',
  );

/** What the last visit of a server found. */
export const shownHealth = z.object({
  status: healthStatus,
  checked_at: z.iso.datetime().describe('When it was last visited.'),
  latency_ms: z
    .int()
    .min(0)
    .optional()
    .describe('Milliseconds from the first request of the visit to its list of tools; absent: no answer.'),
});
