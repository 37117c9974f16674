import { z } from 'zod';
import type { Core } from '../../../core/core.ts';
import type { AuditEntry } from '../../../core/access/audit.ts';
import type { SyncDone } from '../../../core/registry/sync.ts';
import { registryUrl } from '../../../platform/registry-url.ts';
import { operation } from './operation.ts';

/** What a change of the catalogue has to wait for; undefined: for nothing. */
export function waitsFor(core: Core): string | undefined {
  if (!core.catalogue.isWriting) return undefined;
  return core.readiness().status === 'starting'
    ? 'The catalogue is being read into the search index: this begins when that has ended.'
    : 'Another change of the catalogue, such as an import, is under way: this one begins when it has ended.';
}

const OTHER_SYNC =
  'Another sync is under way, here or in another process on this database: this one begins when it has ended.';

const registry = z
  .string()
  .max(2048)
  .transform((address, context) => {
    try {
      return registryUrl(address);
    } catch (error) {
      context.addIssue(error instanceof Error ? error.message : String(error));
      return z.NEVER;
    }
  });

export const syncCatalogue = operation({
  method: 'post',
  path: '/catalogue/sync',
  operationId: 'syncCatalogue',
  summary: 'Bring in what a registry lists',
  description:
    'Any registry of the API v0.1, such as another Switchboard. All of it is done or nothing, and it is searchable when this answers; a sync ends with its connection, and ' +
    'then changes nothing. Where refused is in the answer, too much would have become inactive and nothing was changed. With Accept: application/x-ndjson the answer is lines ' +
    '{"listed"}, {"progress":{"done","of"}}, {"notice"} and a last one {"result"} or {"problem"}.',
  errors: [
    'upstream_unreachable',
    'upstream_timeout',
    'upstream_protocol',
    'upstream_too_large',
    'upstream_http_error',
    'upstream_unauthorized',
    'upstream_blocked',
    'unavailable',
  ],
  isLong: true,
  bodySchema: z.strictObject({
    url: registry.describe('Its address: https, without a key (SWITCHBOARD_REGISTRY_KEYS has those).'),
    full: z
      .boolean()
      .default(false)
      .describe('Ask for everything, not only for what has changed since the last sync.'),
    force: z
      .boolean()
      .default(false)
      .describe('Also where many servers would become inactive. Implies full.'),
  }),
  responseSchema: z.object({
    registry: z.string(),
    mode: z.enum(['full', 'incremental']),
    received: z.int().describe('Entries that it listed.'),
    synced: z.int().describe('Servers that are active and as it has them.'),
    deactivated: z.int(),
    left: z
      .int()
      .describe(
        'Left alone: their id or address is that of the operator, the shipped catalogue or another registry.',
      ),
    skipped: z.object({ deleted: z.int(), no_remote: z.int(), needs_configuration: z.int() }),
    problems: z
      .array(z.object({ name: z.string().optional(), reason: z.string() }))
      .describe('Some of the bad entries.'),
    bad: z.int().describe('Bad entries.'),
    refused: z.string().optional().describe('Why nothing was changed.'),
  }),
  handle: async (core, caller, { body: { url, full, force }, telling }) => {
    const { onListed, onProgress, onNotice } = telling;
    const waits = waitsFor(core);
    if (waits !== undefined) onNotice(waits);
    const entryOf = (
      outcome: 'ok' | 'refused',
      { mode, synced, deactivated, left }: SyncDone,
    ): AuditEntry => ({
      event: 'catalogue_synced',
      outcome,
      meta: { registry: url, mode, synced, deactivated, left, force },
    });
    const report = await core.registrySync.sync(url, {
      full: full || force,
      force,
      onListed,
      onProgress,
      onWait: () => onNotice(OTHER_SYNC),
      alongside: (tx, done) => core.audit.record(caller, entryOf('ok', done), tx),
      signal: caller.signal,
    });
    if (report.refused !== undefined) await core.audit.record(caller, entryOf('refused', report));
    return report;
  },
});
