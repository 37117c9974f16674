import express, { type ErrorRequestHandler, type Express } from 'express';
import { z } from 'zod';
import type { Core } from '../../core/core.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { clientSignal } from '../http/http.ts';
import { jsonObject, parseInput, queryText, searchLimit } from '../http/input.ts';
import { identityRoutes } from './identity-routes.ts';
import { keyRoutes } from './key-routes.ts';
import { operationRoutes } from './operation-routes.ts';
import { operator } from './operator.ts';
import { refusalOf } from './refusal.ts';

interface AdminOptions {
  readonly core: Core;
  readonly log: Log;
}

const searchInput = z.strictObject({ query: queryText, limit: searchLimit });
const callInput = z.strictObject({
  server_id: z.string().min(1),
  name: z.string().min(1),
  arguments: jsonObject.default({}),
});

/** What the control socket serves: the operator's commands. Reaching the socket (0600) is the authentication. */
export function createAdminApp({ core, log }: AdminOptions): Express {
  const app = express();
  app.disable('x-powered-by');
  const json = express.json({ limit: '4mb' });
  app.use(operationRoutes(core, json, log));
  app.use(keyRoutes(core, json));
  app.use(identityRoutes(core, json));

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

function renderError(log: Log): ErrorRequestHandler {
  return (thrown: unknown, _request, response, _next) => {
    const { status, problem } = refusalOf(thrown, log);
    response.status(status).json(problem);
  };
}
