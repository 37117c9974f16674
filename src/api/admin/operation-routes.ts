import express, { Router, type Request, type Response } from 'express';
import type { Caller } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { clientSignal } from '../http/http.ts';
import { parseInput } from '../http/input.ts';
import { operations } from './operations/index.ts';
import { requireType, type Operation, type StreamedOperation } from './operations/operation.ts';
import { answerInLines, NDJSON, SILENT, type Telling } from './progress.ts';
import { operator } from './operator.ts';
import { refusalOf } from './refusal.ts';

/** The operations that `/v1/admin` has too, by the same paths. */
export function operationRoutes(core: Core, json: ReturnType<typeof express.json>, log: Log): Router {
  const router = Router();
  for (const one of operations) {
    const { stream } = one;
    const handler = (request: Request, response: Response) =>
      stream
        ? answerStreamed(core, log, { one, stream }, request, response)
        : answer(core, log, one, request, response);
    router[one.method](one.path, ...(one.bodySchema ? [json] : []), handler);
  }
  return router;
}

const queryOf = ({ querySchema }: Operation, request: Request) =>
  querySchema && parseInput(querySchema, request.query, 'The query string');

async function answer(
  core: Core,
  log: Log,
  one: Operation,
  request: Request,
  response: Response,
): Promise<void> {
  const body: unknown = one.bodySchema && parseInput(one.bodySchema, request.body);
  const params = request.params as Record<string, string>;
  const query = queryOf(one, request);
  const caller = operator(clientSignal(response));
  const work = (telling: Telling) => one.run(core, caller, { body, params, query, telling });
  if (one.isLong === true) await answerLong(log, caller, work, request, response);
  else response.json(await work(SILENT));
}

async function answerStreamed(
  core: Core,
  log: Log,
  { one, stream }: { one: Operation; stream: StreamedOperation },
  request: Request,
  response: Response,
): Promise<void> {
  const query = queryOf(one, request);
  requireType(stream, request.headers['content-type']);
  const caller = operator(clientSignal(response));
  const work = await stream.read(core, caller, request, query);
  await answerLong(log, caller, work, request, response);
}

/** As lines of progress where these are accepted. */
async function answerLong(
  log: Log,
  { signal }: Caller,
  work: (telling: Telling) => Promise<unknown>,
  request: Request,
  response: Response,
): Promise<void> {
  const unlessGone = (telling: Telling) =>
    work(telling).catch((error: unknown) => {
      if (!signal.aborted || error !== signal.reason) throw error;
      log.info(
        'the command that asked for a change of the catalogue has gone: the change was ended, the catalogue is as it was',
      );
      return undefined;
    });
  if (request.headers.accept !== NDJSON) {
    response.json(await unlessGone(SILENT));
    return;
  }
  response.setHeader('Content-Type', NDJSON);
  await answerInLines(response, unlessGone, thrown => refusalOf(thrown, log).problem);
}
