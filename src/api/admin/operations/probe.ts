import { z } from 'zod';
import { healthStatus } from '../../http/health-schema.ts';
import { operation } from './operation.ts';

const OTHER_ROUND =
  'Servers are being visited already, here or by another process on this database: this begins when that has ended.';

const MAX_IDS = 1_000;

export const probeCatalogue = operation({
  method: 'post',
  path: '/catalogue/probe',
  operationId: 'probeCatalogue',
  summary: 'Visit the servers of the catalogue',
  description:
    'Visits all active servers and those that were deactivated for not answering, or the named ones. Each is asked server/discover or initialize, ' +
    'then tools/list, without a credential, for 15 s at most; four hosts at a time. After three time-outs in a row the rest of a host is left out, ' +
    'unless named. Listed tools go into the catalogue. Failures are recorded at the end, and not at all when more than half of at least ten hosts ' +
    'fail (doubted). The work ends with the connection and keeps what it found alive. With Accept: application/x-ndjson the answer ' +
    'is lines {"progress":{"done","of"}}, {"notice"} and a last one {"result"} or {"problem"}.',
  errors: ['server_not_found', 'server_inactive', 'unavailable'],
  isLong: true,
  bodySchema: z.strictObject({
    ids: z
      .array(z.string().min(1).max(256))
      .min(1, 'must name a server; leave it out for all of them')
      .max(MAX_IDS)
      .optional()
      .describe('Only these servers.'),
  }),
  responseSchema: z.object({
    visited: z.int(),
    ok: z.int(),
    needs_sign_in: z.int(),
    not_mcp: z.int(),
    unreachable: z.int(),
    no_verdict: z
      .int()
      .describe('Answers that say nothing of the health, such as HTTP 429: all is as it was.'),
    deactivated: z.int().describe('Dead for 30 days: calls of them are 410 now.'),
    reactivated: z.int().describe('Had become inactive for that, and answer again.'),
    failing: z
      .array(z.object({ id: z.string(), status: healthStatus, reason: z.string() }))
      .describe('Servers that are neither ok nor want a sign-in, and why. The reason may quote the server.'),
    doubted: z.string().optional().describe('Why no failure counts.'),
  }),
  handle: async (core, caller, { body: { ids }, telling: { onProgress, onNotice } }) => {
    const record = (outcome: 'ok' | 'failed', meta: Record<string, number>) =>
      core.audit.record(caller, { event: 'catalogue_probed', outcome, meta });
    let found: Record<string, number> = {};
    const sweeping = core.health.sweep({
      ids,
      onProgress,
      onFound: counts => (found = { ...counts }),
      onWait: () => onNotice(OTHER_ROUND),
      signal: caller.signal,
    });
    const report = await sweeping.catch(async (error: unknown) => {
      // Servers may have been visited all the same.
      await record('failed', found);
      throw error;
    });
    const { failing: _named, doubted, ...counts } = report;
    await record(doubted === undefined ? 'ok' : 'failed', counts);
    return report;
  },
});
