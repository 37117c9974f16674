import { z } from 'zod';
import { registryUrl } from '../../config/catalogue.ts';
import type { AuditEntry } from '../../core/access/audit.ts';
import type { Caller } from '../../core/access/caller.ts';
import type { Entry } from '../../core/catalogue/entry.ts';
import { readEntryStream, type ReadEntries } from '../../core/catalogue/import-file.ts';
import type { Core } from '../../core/core.ts';
import type { SyncDone } from '../../core/registry/sync.ts';
import { boundedChunks } from '../../platform/outbound/fetch.ts';
import { toAbortSignal } from '../../platform/time.ts';
import { SwitchboardError } from '../../errors.ts';
import { endpoint, healthStatus, type Endpoint, type ProgressListener } from '../http/endpoint.ts';
import { ADMIN, WEB_ADDRESS } from './fields.ts';

/** Returns why a catalogue change has to wait. Undefined: it can start. */
function waitsFor(core: Core): string | undefined {
  if (!core.catalogue.isWriting) return undefined;
  return core.readiness().status === 'starting'
    ? 'Waiting for the search index to finish loading.'
    : 'Waiting for another catalogue change, such as an import, to finish.';
}

const MAX_CATALOGUE_BYTES = 512 * 1024 * 1024;

const importQuery = z.strictObject({
  replace: z
    .enum(['true', 'false'])
    .default('false')
    .describe('true: deactivates the servers that the file does not name.'),
});

const importCatalogue: Endpoint = {
  ...ADMIN,
  method: 'post',
  path: '/catalogue/import',
  operationId: 'importCatalogue',
  summary: 'Import servers into the catalogue',
  description:
    'The body is a catalogue file: JSON Lines, one server per line, at most 512 MiB. Bad lines are reported and the rest are imported. The servers are searchable ' +
    'once the response arrives. With Accept: application/x-ndjson the response is a stream of {"progress":{"done","of"}} lines that ends with {"result"} or {"problem"}. ' +
    'Closing the connection cancels the import and leaves the catalogue unchanged.',
  errors: ['invalid_request', 'payload_too_large', 'unsupported_media_type', 'rate_limited'],
  querySchema: importQuery,
  responseSchema: z.object({
    imported: z.int(),
    deactivated: z.int(),
    problems: z.array(z.object({ line: z.int(), reason: z.string(), id: z.string().optional() })),
    unknown_fields: z.array(z.string()),
    warnings: z.array(z.string()),
  }),
  stream: {
    types: ['application/x-ndjson', 'application/jsonl', 'text/plain'],
    busy: 'Another import is running. Try again when it has finished.',
    read: async (core, caller, body, query) => {
      const { replace } = query as z.output<typeof importQuery>;
      const read = await readEntryStream(bounded(body), {
        allowHttp: core.allowHttp,
        compact: entry => core.catalogue.sharing(entry),
      });
      return ({ onProgress, onNotice }) => {
        const waits = waitsFor(core);
        if (waits !== undefined) onNotice(waits);
        return importEntries(core, caller, read, { replace: replace === 'true', onProgress });
      };
    },
  },
};

async function* bounded(body: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  try {
    yield* boundedChunks(body, MAX_CATALOGUE_BYTES, tooLarge);
  } catch (cause) {
    if (cause instanceof SwitchboardError) throw cause;
    throw new SwitchboardError(
      'invalid_request',
      'The upload ended early. Nothing was changed. Send the file again.',
      { cause },
    );
  }
}

const tooLarge = () =>
  new SwitchboardError(
    'payload_too_large',
    `The file is larger than ${MAX_CATALOGUE_BYTES} bytes. Import it in parts.`,
  );

/**
 * Stores the valid entries, which are searchable when this resolves, and reports the bad lines. A replacement keeps servers
 * with a bad line unchanged, and a file without a valid entry replaces nothing.
 */
async function importEntries(
  core: Core,
  caller: Caller,
  { entries, problems, unknownFields }: ReadEntries,
  { replace, onProgress }: { replace: boolean; onProgress: ProgressListener['onProgress'] },
) {
  if (entries.length === 0 && problems.length === 0) {
    throw new SwitchboardError('invalid_request', 'The file contains no valid entry. Nothing was changed.');
  }
  const keep = new Set(problems.flatMap(({ id }) => id ?? []));
  const change =
    entries.length === 0
      ? undefined
      : await core.catalogue.put(entries, {
          origin: 'operator',
          replace,
          exclude: keep,
          onProgress,
          inSameTransaction: (tx, { upserted, removed }) => {
            const counts = { imported: upserted.length, deactivated: removed.length };
            const meta = { ...counts, bad_lines: problems.length, replace };
            return core.audit.record(caller, { event: 'catalogue_imported', outcome: 'ok', meta }, tx);
          },
          signal: toAbortSignal(caller.signal),
        });
  return {
    imported: change?.upserted.length ?? 0,
    deactivated: change?.removed.length ?? 0,
    problems,
    unknown_fields: unknownFields,
    warnings: entries.flatMap(entry => signInWarning(core, entry) ?? []),
  };
}

/**
 * Returns why calls to a server that acts for end users would fail. This is only a warning, because the settings can follow later.
 */
export function signInWarning({ identity }: Core, { id, remote_url, auth }: Entry): string | undefined {
  if (auth?.kind !== 'user_oauth' || auth.provider === undefined) return undefined;
  const name = JSON.stringify(auth.provider);
  const provider = identity.providers.get(auth.provider);
  if (!provider)
    return `${id}: the identity provider ${name} is not configured. Calls to this server fail until you add it to SWITCHBOARD_PROVIDERS`;
  const { origin } = new URL(remote_url);
  if (provider.settings.allowedOrigins.includes(origin)) return undefined;
  return `${id}: allowed_origins of the identity provider ${name} does not include ${origin}. Calls to this server fail until you add it in SWITCHBOARD_PROVIDERS`;
}

const OTHER_SYNC = 'Waiting for another sync on this database to finish.';

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

const syncCatalogue = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/catalogue/sync',
  operationId: 'syncCatalogue',
  summary: 'Sync servers from a registry',
  description:
    'Imports the servers of any registry that has the v0.1 API, such as another Switchboard. A sync is all or nothing, and its servers are searchable once ' +
    'the response arrives. Closing the connection cancels it and leaves the catalogue unchanged. If the response has refused, too many servers would have become inactive and nothing was ' +
    'changed. With Accept: application/x-ndjson the response is a stream of {"listed"}, {"progress":{"done","of"}} and {"notice"} lines that ends with {"result"} or {"problem"}.',
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
    url: registry
      .meta(WEB_ADDRESS)
      .describe('The https URL of the registry. Do not include a key; set SWITCHBOARD_REGISTRY_KEYS.'),
    full: z
      .boolean()
      .default(false)
      .describe('true: fetches all servers, not only those that changed since the last sync.'),
    force: z
      .boolean()
      .default(false)
      .describe('true: syncs even if many servers would become inactive. Implies full.'),
  }),
  responseSchema: z.object({
    registry: z.string(),
    mode: z.enum(['full', 'incremental']),
    received: z.int().describe('The number of entries that the registry listed.'),
    synced: z.int().describe('The number of active servers that match the registry.'),
    deactivated: z.int(),
    left: z
      .int()
      .describe(
        'The number of entries skipped because their id or address belongs to the operator, the shipped catalogue or another registry.',
      ),
    skipped: z.object({ deleted: z.int(), no_remote: z.int(), needs_configuration: z.int() }),
    problems: z
      .array(z.object({ name: z.string().optional(), reason: z.string() }))
      .describe('Some of the bad entries, and what is wrong with them.'),
    bad: z.int().describe('The number of bad entries.'),
    refused: z.string().optional().describe('Why nothing was changed.'),
  }),
  handle: async (core, caller, { body: { url, full, force }, progress }) => {
    const { onListed, onProgress, onNotice } = progress;
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
      inSameTransaction: (tx, done) => core.audit.record(caller, entryOf('ok', done), tx),
      signal: toAbortSignal(caller.signal),
    });
    if (report.refused !== undefined) await core.audit.record(caller, entryOf('refused', report));
    return report;
  },
});

const reindexCatalogue = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/catalogue/reindex',
  operationId: 'reindexCatalogue',
  summary: 'Re-embed the catalogue',
  description:
    'Deletes the stored vectors of the embedding model in use, embeds all texts again and rebuilds the search index. Use it when ' +
    'the model has changed under the same name. Searches keep working meanwhile. Other processes load the new vectors at their next start. If the ' +
    'model is unavailable, nothing is deleted. With Accept: application/x-ndjson the response is a stream of {"progress":{"done","of"}} and {"notice"} lines that ' +
    'ends with {"result"} or {"problem"}.',
  errors: ['unavailable'],
  isLong: true,
  bodySchema: z.strictObject({}),
  responseSchema: z.object({ servers: z.int().describe('The number of servers in the search index.') }),
  handle: async (core, caller, { progress: { onProgress, onNotice } }) => {
    const waits = waitsFor(core);
    if (waits !== undefined) onNotice(waits);
    await core.indexed;
    const done = await core.reindex(onProgress, toAbortSignal(caller.signal));
    await core.audit.record(caller, { event: 'catalogue_reindexed', outcome: 'ok', meta: { ...done } });
    return done;
  },
});

const OTHER_ROUND = 'Waiting for another health check on this database to finish.';

const MAX_IDS = 1_000;

const probeCatalogue = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/catalogue/probe',
  operationId: 'probeCatalogue',
  summary: 'Check the servers of the catalogue',
  description:
    'Checks all active servers and those that were deactivated as unreachable, or only the named ones. Each check sends server/discover or initialize, ' +
    'then tools/list, without credentials, and takes at most 15 s; four hosts are checked at a time. After three timeouts in a row the remaining servers of a host are skipped ' +
    'unless named. Listed tools are stored in the catalogue. Failures are recorded at the end, unless more than half of at least ten hosts ' +
    'fail (doubted). Closing the connection stops the check and keeps the successes so far. With Accept: application/x-ndjson the response ' +
    'is a stream of {"progress":{"done","of"}} and {"notice"} lines that ends with {"result"} or {"problem"}.',
  errors: ['server_not_found', 'server_inactive', 'unavailable'],
  isLong: true,
  bodySchema: z.strictObject({
    ids: z
      .array(z.string().min(1).max(256))
      .min(1, 'must contain at least one id; omit the field to check all servers')
      .max(MAX_IDS)
      .optional()
      .describe('Checks only these servers.'),
  }),
  responseSchema: z.object({
    visited: z.int(),
    ok: z.int(),
    needs_sign_in: z.int(),
    not_mcp: z.int(),
    unreachable: z.int(),
    no_verdict: z.int().describe('The number of inconclusive checks, such as HTTP 429. They change nothing.'),
    deactivated: z
      .int()
      .describe('The number of servers deactivated after 30 days of failures. Calls to them now return 410.'),
    reactivated: z.int().describe('The number of servers reactivated because they respond again.'),
    failing: z
      .array(z.object({ id: z.string(), status: healthStatus, reason: z.string() }))
      .describe('The servers that failed, with the reason, which may quote the server.'),
    doubted: z.string().optional().describe('Why the failures of this check were not recorded.'),
  }),
  handle: async (core, caller, { body: { ids }, progress: { onProgress, onNotice } }) => {
    const record = (outcome: 'ok' | 'failed', meta: Record<string, number>) =>
      core.audit.record(caller, { event: 'catalogue_probed', outcome, meta });
    let found: Record<string, number> = {};
    const sweeping = core.health.sweep({
      ids,
      onProgress,
      onFound: counts => (found = { ...counts }),
      onWait: () => onNotice(OTHER_ROUND),
      signal: toAbortSignal(caller.signal),
    });
    const report = await sweeping.catch(async (error: unknown) => {
      // Some servers may have been checked before the error.
      await record('failed', found);
      throw error;
    });
    const { failing: _named, doubted, ...counts } = report;
    await record(doubted === undefined ? 'ok' : 'failed', counts);
    return report;
  },
});

/** Endpoints that change many entries at once and may take long. */
export const changeEndpoints: readonly Endpoint[] = [
  importCatalogue,
  syncCatalogue,
  reindexCatalogue,
  probeCatalogue,
];
