import express, { type ErrorRequestHandler, type Express, type Request } from 'express';
import { z } from 'zod';
import { LOCAL_TENANT } from '../../core/access/api-keys.ts';
import { SCOPES, type Caller } from '../../core/caller.ts';
import { toEntry, type Server } from '../../core/catalogue/entry.ts';
import { readEntries, type ReadEntries } from '../../core/catalogue/read-entries.ts';
import type { Core } from '../../core/core.ts';
import { SwitchboardError } from '../../errors.ts';
import { newId } from '../../infra/ids.ts';
import type { Log } from '../../infra/log.ts';
import { clientSignal } from '../http.ts';
import { jsonObject, parseInput, queryText, searchLimit } from '../input.ts';
import { errorOf, problemOf } from '../problem.ts';

interface AdminOptions {
  readonly core: Core;
  readonly log: Log;
  readonly allowHttp: boolean;
}

const MAX_CATALOGUE_BYTES = 512 * 1024 * 1024;

const newKey = z.strictObject({
  name: z.string().min(1, 'must not be empty').max(200),
  scopes: z.array(z.enum(SCOPES, `must be one of ${SCOPES.join(', ')}`)).min(1),
  expires_at: z.iso
    .datetime({ offset: true, error: 'must be an ISO 8601 time such as 2030-01-31T00:00:00Z' })
    .refine(time => Date.parse(time) > Date.now(), 'must be in the future')
    .optional(),
});
const searchInput = z.strictObject({ query: queryText, limit: searchLimit });
const callInput = z.strictObject({
  server_id: z.string().min(1),
  name: z.string().min(1),
  arguments: jsonObject.default({}),
});

/** What the control socket serves: the operator's commands. Reaching the socket (0600) is the authentication. */
export function createAdminApp({ core, log, allowHttp }: AdminOptions): Express {
  const app = express();
  app.disable('x-powered-by');
  const json = express.json({ limit: '4mb' });
  const text = express.text({ type: () => true, limit: MAX_CATALOGUE_BYTES });

  app.get('/keys', async (_request, response) => void response.json({ keys: await core.apiKeys.list() }));
  app.post('/keys', json, async (request, response) => {
    const { name, scopes, expires_at } = parseInput(newKey, request.body);
    response.json(
      await core.apiKeys.create({
        name,
        scopes,
        ...(expires_at === undefined ? {} : { expiresAt: new Date(expires_at) }),
      }),
    );
  });
  app.post('/keys/:id/revoke', async (request, response) => {
    response.json(await core.apiKeys.revoke(request.params.id));
  });

  app.post('/catalogue/import', text, async (request: Request, response) => {
    const read = readEntries(typeof request.body === 'string' ? request.body : '', { allowHttp });
    response.json(await importEntries(core, read, request.query['replace'] === 'true'));
  });
  app.get('/catalogue/:id', (request, response) => {
    const server = core.catalogue.get(request.params.id) ?? core.catalogue.require(request.params.id);
    response.json(shown(server));
  });
  app.post('/catalogue/:id/tools', async (request, response) => {
    response.json({ tools: await learnTools(core, request.params.id, allowHttp, clientSignal(response)) });
  });
  app.post('/catalogue/:id/deactivate', async (request, response) => {
    response.json(shown(await core.catalogue.deactivate(request.params.id)));
  });

  app.post('/search', json, async (request, response) => {
    await core.indexed;
    response.json(
      await core.search.search(operator(clientSignal(response)), parseInput(searchInput, request.body)),
    );
  });
  app.post('/call', json, async (request, response) => {
    const { server_id, name, arguments: args } = parseInput(callInput, request.body);
    response.json(
      await core.proxy.callTool(operator(clientSignal(response)), {
        serverId: server_id,
        name,
        arguments: args,
      }),
    );
  });
  app.use(renderError(log));
  return app;
}

/** A server as the operator sees it: its entry, and what has become of it. */
const shown = (server: Server) => ({ ...toEntry(server), active: server.active, origin: server.origin });

const operator = (signal: AbortSignal): Caller => ({
  tenantId: LOCAL_TENANT,
  keyId: 'operator',
  scopes: new Set(SCOPES),
  requestId: newId('req'),
  signal,
});

/**
 * The good entries are stored and searchable when this resolves; the bad lines are reported. In a replacement, a server
 * whose line is bad stays as it was, and a file without one good entry replaces nothing.
 */
async function importEntries(core: Core, read: ReadEntries, replace: boolean) {
  const { entries, problems, unknownFields } = read;
  if (entries.length === 0 && problems.length === 0) {
    throw new SwitchboardError('invalid_request', 'The file holds no entry: nothing was changed.');
  }
  const keep = new Set(problems.flatMap(({ id }) => id ?? []));
  const change =
    entries.length === 0
      ? undefined
      : await core.catalogue.put(entries, { origin: 'operator', replace, keep });
  return {
    imported: change?.upserted.length ?? 0,
    deactivated: change?.removed.length ?? 0,
    problems,
    unknown_fields: unknownFields,
  };
}

/** Asks the server itself for its tools and puts them into its entry. Resolves with how many there are. */
async function learnTools(core: Core, id: string, allowHttp: boolean, signal: AbortSignal): Promise<number> {
  const server = core.catalogue.require(id);
  const { tools } = await core.proxy.listTools(operator(signal), { serverId: id });
  const listed = tools.map(({ name, description, inputSchema }) => ({
    name,
    description,
    input_schema: inputSchema,
  }));
  // What a server says is checked like a line of a file.
  const { entries, problems } = readEntries(JSON.stringify({ ...toEntry(server), tools: listed }), {
    allowHttp,
  });
  if (problems[0])
    throw new SwitchboardError('upstream_protocol', `Its tools cannot be stored: ${problems[0].reason}.`);
  await core.catalogue.put(entries, { origin: server.origin });
  return tools.length;
}

function renderError(log: Log): ErrorRequestHandler {
  return (thrown: unknown, _request, response, _next) => {
    const requestId = newId('req');
    const error = errorOf(thrown);
    if (error.code === 'internal') log.error({ err: thrown, requestId }, 'operator command failed');
    response.status(error.status).json(problemOf(error, requestId));
  };
}
