import { Router } from 'express';
import { z } from 'zod';
import { toEntry, type Entry, type Server } from '../../core/catalogue/entry.ts';
import { readEntryStream, type ReadEntries } from '../../core/catalogue/read-entries.ts';
import { warningsOf } from '../../core/catalogue/tool-warnings.ts';
import { registryUrl } from '../../core/registry/registry-url.ts';
import type { Core } from '../../core/core.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../infra/log.ts';
import { clientSignal } from '../http.ts';
import { parseInput } from '../input.ts';
import { operator } from './operator.ts';
import { answerWithProgress, type Telling } from './progress.ts';

const MAX_CATALOGUE_BYTES = 512 * 1024 * 1024;

const syncInput = z.object({
  url: z.string().transform((address, context) => {
    try {
      return registryUrl(address);
    } catch (error) {
      context.addIssue(error instanceof Error ? error.message : String(error));
      return z.NEVER;
    }
  }),
  full: z.enum(['true', 'false']).optional(),
  force: z.enum(['true', 'false']).optional(),
});

/** `catalogue …` */
export function catalogueRoutes(core: Core, allowHttp: boolean, log: Log): Router {
  const router = Router();
  router.post('/import', async (request, response) => {
    const options = {
      allowHttp,
      replace: request.query['replace'] === 'true',
      signal: clientSignal(response),
    };
    await answerWithProgress(request, response, log, telling =>
      importFile(core, log, request, { ...options, ...telling }),
    );
  });
  router.post('/sync', async (request, response) => {
    const { url, full, force } = parseInput(syncInput, request.query, 'The query string');
    const signal = clientSignal(response);
    const options = { full: full === 'true', force: force === 'true', signal };
    await answerWithProgress(request, response, log, ({ onListed, onProgress, onNotice }) => {
      if (core.catalogue.isWriting) onNotice(WAITS);
      const telling = { onListed, onProgress, onWait: () => onNotice(OTHER_SYNC) };
      return core.registrySync.sync(url, { ...options, ...telling }).catch(unlessGone(log, signal));
    });
  });
  router.get('/:id', (request, response) => {
    const server = core.catalogue.get(request.params.id) ?? core.catalogue.require(request.params.id);
    response.json(shown(server));
  });
  router.post('/:id/tools', async (request, response) => {
    response.json({ tools: await learnTools(core, request.params.id, clientSignal(response)) });
  });
  router.post('/:id/deactivate', async (request, response) => {
    response.json(shown(await core.catalogue.deactivate(request.params.id)));
  });
  return router;
}

async function* bounded(request: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let bytes = 0;
  try {
    for await (const chunk of request) {
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

/** A server as the operator sees it: its entry, and what has become of it. */
const shown = (server: Server) => ({
  ...toEntry(server),
  tools: server.tools.map(tool => {
    const { name, description, input_schema } = tool;
    const warnings = warningsOf(tool, Date.now());
    return { name, description, input_schema, ...(warnings.length === 0 ? {} : { warnings }) };
  }),
  tools_source: server.toolsListedAt === undefined ? 'catalogue' : 'live',
  ...(server.toolsListedAt === undefined
    ? {}
    : { tools_listed_at: new Date(server.toolsListedAt).toISOString() }),
  active: server.active,
  origin: server.origin,
  ...(server.registry === undefined ? {} : { registry: registryOf(server.registry) }),
});

/** Without the document itself, which `/v0.1/servers` has. */
const registryOf = ({ document: _document, ...mark }: NonNullable<Server['registry']>) => mark;

interface ImportOptions extends Telling {
  readonly allowHttp: boolean;
  readonly replace: boolean;
  /** Aborts when the command has gone: the import ends with it, and changes nothing. */
  readonly signal: AbortSignal;
}

const WAITS =
  'Another change of the catalogue, such as an import, is under way: this one begins when it has ended.';

const OTHER_SYNC =
  'Another sync is under way, here or in another process on this database: this one begins when it has ended.';

async function importFile(core: Core, log: Log, file: AsyncIterable<Buffer>, options: ImportOptions) {
  const { allowHttp, signal, onNotice } = options;
  let hasToWait = false;
  const sayIfItWaits = () => {
    if (!hasToWait && core.catalogue.isWriting) onNotice(WAITS);
    hasToWait ||= core.catalogue.isWriting;
  };
  try {
    sayIfItWaits();
    const compact = (entry: Entry) => core.catalogue.sharing(entry);
    const read = await readEntryStream(bounded(file), { allowHttp, compact });
    sayIfItWaits();
    return await importEntries(core, read, options);
  } catch (error) {
    return unlessGone(log, signal)(error);
  }
}

/** What a command that has gone would be told is for nobody. @throws the error where it is another one */
const unlessGone =
  (log: Log, signal: AbortSignal) =>
  (error: unknown): undefined => {
    if (!signal.aborted || error !== signal.reason) throw error;
    log.info(
      'the command that asked for a change of the catalogue has gone: the change was ended, the catalogue is as it was',
    );
    return undefined;
  };

/**
 * The good entries are stored and searchable when this resolves; the bad lines are reported. In a replacement, a server
 * whose line is bad stays as it was, and a file without one good entry replaces nothing.
 */
async function importEntries(
  core: Core,
  read: ReadEntries,
  { replace, onProgress, signal }: Pick<ImportOptions, 'replace' | 'onProgress' | 'signal'>,
) {
  const { entries, problems, unknownFields } = read;
  if (entries.length === 0 && problems.length === 0) {
    throw new SwitchboardError('invalid_request', 'The file holds no entry: nothing was changed.');
  }
  const keep = new Set(problems.flatMap(({ id }) => id ?? []));
  const change =
    entries.length === 0
      ? undefined
      : await core.catalogue.put(entries, { origin: 'operator', replace, keep, onProgress, signal });
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

/** Asks the server itself for its tools and puts them into its entry. Resolves with how many the catalogue then has. */
async function learnTools({ catalogue, proxy }: Core, id: string, signal: AbortSignal): Promise<number> {
  const server = catalogue.require(id);
  const { tools } = await proxy.listTools(operator(signal), { serverId: id });
  await catalogue.refreshTools(server, tools, Date.now());
  return catalogue.require(id).tools.length;
}
