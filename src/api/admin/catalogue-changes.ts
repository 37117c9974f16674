import { z } from 'zod';
import { registryUrl } from '../../config/catalogue.ts';
import type { AuditEntry } from '../../core/access/audit.ts';
import type { Caller } from '../../core/access/caller.ts';
import type { Entry } from '../../core/catalogue/entry.ts';
import { readEntryStream, type ReadEntries } from '../../core/catalogue/import-file.ts';
import type { Core } from '../../core/core.ts';
import type { SyncDone } from '../../core/registry/sync.ts';
import { boundedChunks } from '../../platform/outbound/fetch.ts';
import { SwitchboardError } from '../../errors.ts';
import { type Endpoint, healthStatus, type ProgressListener } from '../http/endpoint.ts';
import { ADMIN, operation } from './operation.ts';

/** Returns what a change of the catalogue has to wait for. Undefined: it can begin. */
function waitsFor(core: Core): string | undefined {
  if (!core.catalogue.isWriting) return undefined;
  return core.readiness().status === 'starting'
    ? 'Waiting for the catalogue to be read into the search index.'
    : 'Waiting for another change of the catalogue, such as an import, to end.';
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
    'The body is a catalogue file: JSON Lines, one server a line, at most 512 MiB. A bad line is reported and the others are imported. They are searchable ' +
    'when this answers. With Accept: application/x-ndjson the answer is lines {"progress":{"done","of"}} and a last one {"result"} or {"problem"}. ' +
    'Closing the connection cancels the import; nothing is changed then.',
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
      'The file was cut short. Nothing was changed; send it again.',
      { cause },
    );
  }
}

const tooLarge = () =>
  new SwitchboardError(
    'payload_too_large',
    `The file has more than ${MAX_CATALOGUE_BYTES} bytes. Import it in parts.`,
  );

/**
 * Stores the good entries, which are searchable when this resolves, and reports the bad lines. In a replacement, a server whose line is
 * bad stays as it was, and a file without one good entry replaces nothing.
 */
async function importEntries(
  core: Core,
  caller: Caller,
  { entries, problems, unknownFields }: ReadEntries,
  { replace, onProgress }: { replace: boolean; onProgress: ProgressListener['onProgress'] },
) {
  if (entries.length === 0 && problems.length === 0) {
    throw new SwitchboardError('invalid_request', 'The file has no entry. Nothing was changed.');
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
          signal: caller.signal,
        });
  return {
    imported: change?.upserted.length ?? 0,
    deactivated: change?.removed.length ?? 0,
    problems,
    unknown_fields: unknownFields,
    warnings: entries.flatMap(entry => signInWarning(core, entry) ?? []),
  };
}

/** Returns why calls of a server that acts for end users would be refused here. It is a warning only: the settings can follow later. */
function signInWarning({ identity }: Core, { id, remote_url, auth }: Entry): string | undefined {
  if (auth?.kind !== 'user_oauth' || auth.provider === undefined) return undefined;
  const name = JSON.stringify(auth.provider);
  const provider = identity.providers.get(auth.provider);
  if (!provider)
    return `${id}: the identity provider ${name} is not configured here (SWITCHBOARD_PROVIDERS); until it is, calls are refused`;
  const { origin } = new URL(remote_url);
  if (provider.settings.allowedOrigins.includes(origin)) return undefined;
  return `${id}: allowed_origins of the identity provider ${name} do not name ${origin} (SWITCHBOARD_PROVIDERS); until they do, calls are refused`;
}

const OTHER_SYNC = 'Waiting for another sync to end, here or in another process on this database.';

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

const syncCatalogue = operation({
  method: 'post',
  path: '/catalogue/sync',
  operationId: 'syncCatalogue',
  summary: 'Bring in what a registry lists',
  description:
    'Takes the servers of any registry with the API v0.1, such as another Switchboard. A sync is done as a whole or not at all, and its servers are searchable when ' +
    'this answers. Closing the connection cancels it; nothing is changed then. If the answer has refused, too many servers would have become inactive and nothing was ' +
    'changed. With Accept: application/x-ndjson the answer is lines {"listed"}, {"progress":{"done","of"}}, {"notice"} and a last one {"result"} or {"problem"}.',
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
    url: registry.describe(
      'The https address of the registry, without a key: keys belong in SWITCHBOARD_REGISTRY_KEYS.',
    ),
    full: z
      .boolean()
      .default(false)
      .describe('true: asks for all servers, not only for those that changed since the last sync.'),
    force: z
      .boolean()
      .default(false)
      .describe('true: syncs even if many servers become inactive. Implies full.'),
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
        'The number of entries left alone, because their id or address belongs to the operator, the shipped catalogue or another registry.',
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
      signal: caller.signal,
    });
    if (report.refused !== undefined) await core.audit.record(caller, entryOf('refused', report));
    return report;
  },
});

const reindexCatalogue = operation({
  method: 'post',
  path: '/catalogue/reindex',
  operationId: 'reindexCatalogue',
  summary: 'Embed the catalogue anew',
  description:
    'Deletes the stored vectors of the embedding model in use, embeds all texts again and fills the search index with the new vectors. Use it when ' +
    'another model answers under the same name. Searches go on meanwhile. Other processes take the new vectors at their next start. If the ' +
    'model does not answer, nothing is deleted. With Accept: application/x-ndjson the answer is lines {"progress":{"done","of"}}, {"notice"} and a ' +
    'last one {"result"} or {"problem"}.',
  errors: ['unavailable'],
  isLong: true,
  bodySchema: z.strictObject({}),
  responseSchema: z.object({ servers: z.int().describe('The number of servers in the search index.') }),
  handle: async (core, caller, { progress: { onProgress, onNotice } }) => {
    const waits = waitsFor(core);
    if (waits !== undefined) onNotice(waits);
    await core.indexed;
    const done = await core.reindex(onProgress, caller.signal);
    await core.audit.record(caller, { event: 'catalogue_reindexed', outcome: 'ok', meta: { ...done } });
    return done;
  },
});

const OTHER_ROUND =
  'Waiting for another visit of the servers to end, here or in another process on this database.';

const MAX_IDS = 1_000;

const probeCatalogue = operation({
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
      .describe('Visits only these servers.'),
  }),
  responseSchema: z.object({
    visited: z.int(),
    ok: z.int(),
    needs_sign_in: z.int(),
    not_mcp: z.int(),
    unreachable: z.int(),
    no_verdict: z
      .int()
      .describe(
        'The number of answers that say nothing about health, such as HTTP 429. They change nothing.',
      ),
    deactivated: z
      .int()
      .describe('The number of servers that were dead for 30 days. Calls of them are 410 now.'),
    reactivated: z
      .int()
      .describe('The number of servers that had become inactive for that and answer again.'),
    failing: z
      .array(z.object({ id: z.string(), status: healthStatus, reason: z.string() }))
      .describe('The servers that failed, and why. The reason may quote the server.'),
    doubted: z.string().optional().describe('Why no failure of this sweep counts.'),
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
      signal: caller.signal,
    });
    const report = await sweeping.catch(async (error: unknown) => {
      // Some servers may have been visited before the error.
      await record('failed', found);
      throw error;
    });
    const { failing: _named, doubted, ...counts } = report;
    await record(doubted === undefined ? 'ok' : 'failed', counts);
    return report;
  },
});

/** The endpoints that change many entries at once, and may take long. */
export const changeEndpoints: readonly Endpoint[] = [
  importCatalogue,
  syncCatalogue,
  reindexCatalogue,
  probeCatalogue,
];
