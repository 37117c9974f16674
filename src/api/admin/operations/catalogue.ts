import { z } from 'zod';
import type { Caller } from '../../../core/access/caller.ts';
import { bareTool, toEntry, type Entry, type Server } from '../../../core/catalogue/entry.ts';
import { shownHealth as inWire, type Health } from '../../../core/catalogue/health.ts';
import { readEntryStream, type ReadEntries } from '../../../core/catalogue/import-file.ts';
import { warningsOf } from '../../../core/catalogue/tools/warnings.ts';
import type { Core } from '../../../core/core.ts';
import { errorCodes, SwitchboardError } from '../../../errors.ts';
import { shownHealth } from '../../http/health-schema.ts';
import type { Telling } from '../progress.ts';
import { operation, type Operation } from './operation.ts';
import { probeCatalogue } from './probe.ts';
import { syncCatalogue, waitsFor } from './sync.ts';

const UPSTREAM_ERRORS = errorCodes.filter(code => code.startsWith('upstream_'));
const MAX_CATALOGUE_BYTES = 512 * 1024 * 1024;

const importQuery = z.strictObject({
  replace: z
    .enum(['true', 'false'])
    .default('false')
    .describe('true: what the file does not name is no longer active.'),
});

const importCatalogue: Operation = {
  method: 'post',
  path: '/catalogue/import',
  operationId: 'importCatalogue',
  summary: 'Import servers into the catalogue',
  description:
    'The body is a catalogue file as it is: JSON Lines, one server a line, at most 512 MiB. A bad line is reported and the others are imported; they are searchable ' +
    'when this answers. With Accept: application/x-ndjson the answer is lines {"progress":{"done","of"}} and a last one {"result"} or {"problem"}. ' +
    'It ends with the connection, and then changes nothing.',
  errors: ['invalid_request', 'payload_too_large', 'unsupported_media_type'],
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
      return telling => {
        const waits = waitsFor(core);
        if (waits !== undefined) telling.onNotice(waits);
        return importEntries(core, caller, read, {
          replace: replace === 'true',
          onProgress: telling.onProgress,
        });
      };
    },
  },
  run: () => Promise.reject(new Error('an import reads its body itself')),
};

async function* bounded(body: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let bytes = 0;
  try {
    for await (const chunk of body) {
      bytes += chunk.length;
      if (bytes > MAX_CATALOGUE_BYTES) {
        throw new SwitchboardError(
          'payload_too_large',
          `The file is over ${MAX_CATALOGUE_BYTES} bytes. Import it in parts.`,
        );
      }
      yield chunk;
    }
  } catch (cause) {
    if (cause instanceof SwitchboardError) throw cause;
    throw new SwitchboardError('invalid_request', 'The file was cut short: nothing was changed.', { cause });
  }
}

/**
 * The good entries are stored and searchable when this resolves; the bad lines are reported. In a replacement, a server
 * whose line is bad stays as it was, and a file without one good entry replaces nothing.
 */
async function importEntries(
  core: Core,
  caller: Caller,
  { entries, problems, unknownFields }: ReadEntries,
  { replace, onProgress }: { replace: boolean; onProgress: Telling['onProgress'] },
) {
  if (entries.length === 0 && problems.length === 0) {
    throw new SwitchboardError('invalid_request', 'The file holds no entry: nothing was changed.');
  }
  const keep = new Set(problems.flatMap(({ id }) => id ?? []));
  const change =
    entries.length === 0
      ? undefined
      : await core.catalogue.put(entries, {
          origin: 'operator',
          replace,
          keep,
          onProgress,
          alongside: (tx, { upserted, removed }) => {
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

/** Why calls of a server that acts for end users would be refused here. The settings can follow the entry: no problem of its. */
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

const serverInfo = z
  .looseObject({
    id: z.string(),
    name: z.string(),
    description: z.string(),
    remote_url: z.string(),
    tools: z.array(z.looseObject({ name: z.string(), description: z.string() })),
    tools_source: z.enum(['catalogue', 'live']).describe('live: as the server itself listed them.'),
    tools_listed_at: z.iso.datetime().optional(),
    active: z.boolean(),
    unanswered: z
      .literal(true)
      .optional()
      .describe(
        'Inactive since it did not answer for 30 days; active again as soon as a visit has an answer.',
      ),
    health: shownHealth
      .extend({
        last_ok_at: z.iso.datetime().optional().describe('Absent: no visit found it alive.'),
        failures: z.int().describe('Visits in a row that failed.'),
        dead_since: z.iso.datetime().optional().describe('Since the third of them; absent: it is not dead.'),
      })
      .optional()
      .describe('What the last visit found; absent: there was none at this address.'),
    origin: z.enum(['shipped', 'operator', 'registry']),
    registry: z
      .looseObject({ source: z.string(), name: z.string(), version: z.string() })
      .optional()
      .describe("Where a registry's entry came from."),
  })
  .describe('The entry as a catalogue file has it, and what has become of it.');

/** A server as the operator sees it: its entry, and what has become of it. */
const shown = (server: Server, health: Health | undefined) => ({
  ...toEntry(server),
  tools: server.tools.map(tool => {
    const warnings = warningsOf(tool, Date.now());
    return { ...bareTool(tool), ...(warnings.length === 0 ? {} : { warnings }) };
  }),
  tools_source: server.toolsListedAt === undefined ? 'catalogue' : 'live',
  ...(server.toolsListedAt === undefined
    ? {}
    : { tools_listed_at: new Date(server.toolsListedAt).toISOString() }),
  active: server.active,
  ...(server.unanswered ? { unanswered: true } : {}),
  ...(health ? { health: healthForOperators(health) } : {}),
  origin: server.origin,
  ...(server.registry === undefined ? {} : { registry: registryOf(server.registry) }),
});

const healthForOperators = (health: Health) => {
  const { lastOkAtMs, deadSinceMs, failures } = health;
  return {
    ...inWire(health),
    ...(lastOkAtMs === undefined ? {} : { last_ok_at: new Date(lastOkAtMs).toISOString() }),
    failures,
    ...(deadSinceMs === undefined ? {} : { dead_since: new Date(deadSinceMs).toISOString() }),
  };
};

/** Without the document itself, which `/v0.1/servers` has. */
const registryOf = ({ document: _document, ...mark }: NonNullable<Server['registry']>) => mark;

const show = operation({
  method: 'get',
  path: '/catalogue/:id',
  operationId: 'showServer',
  summary: 'Show a server of the catalogue',
  description: 'An inactive one, too.',
  errors: ['server_not_found'],
  responseSchema: serverInfo,
  handle: ({ catalogue, health }, _caller, { params: { id = '' } }) => {
    const server = catalogue.get(id) ?? catalogue.require(id);
    return Promise.resolve(shown(server, health.healthOf(server)));
  },
});

const learnTools = operation({
  method: 'post',
  path: '/catalogue/:id/tools',
  operationId: 'readServerTools',
  summary: "Put a server's own list of tools into its entry",
  description: 'Asks the server, for no user: one that acts for end users alone is refused.',
  errors: ['server_not_found', 'server_inactive', 'identity_token_required', ...UPSTREAM_ERRORS],
  responseSchema: z.object({ tools: z.int().describe('How many the entry has now.') }),
  handle: async ({ catalogue, proxy, audit }, caller, { params: { id = '' } }) => {
    const server = catalogue.require(id);
    const { tools } = await proxy.listTools(caller, { serverId: id });
    await catalogue.refreshTools(server, tools, Date.now(), {
      alongside: (tx, { upserted: [refreshed] }) => {
        const meta = { server: id, tools: refreshed?.tools.length ?? 0 };
        return audit.record(caller, { event: 'server_tools_read', outcome: 'ok', meta }, tx);
      },
    });
    return { tools: catalogue.require(id).tools.length };
  },
});

const deactivate = operation({
  method: 'post',
  path: '/catalogue/:id/deactivate',
  operationId: 'deactivateServer',
  summary: 'Take a server out of use',
  description: 'It is not found any more, and calls of it are 410. An import brings it back.',
  errors: ['server_not_found'],
  responseSchema: serverInfo,
  handle: async ({ catalogue, audit, health }, caller, { params: { id = '' } }) => {
    const meta = { server: id };
    const server = await catalogue.deactivate(id, tx =>
      audit.record(caller, { event: 'server_deactivated', outcome: 'ok', meta }, tx),
    );
    return shown(server, health.healthOf(server));
  },
});

export const catalogueOperations: readonly Operation[] = [
  importCatalogue,
  syncCatalogue,
  probeCatalogue,
  show,
  learnTools,
  deactivate,
];
