import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Caller } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { decodedBody, letGoBy } from '../http/body.ts';
import { addHeaders, localsOf, sendJson, writeHead } from '../http/http.ts';
import { requireType, type StreamedOperation } from '../admin/operations/operation.ts';
import { errorOf, problemOf } from '../http/problem.ts';
import { answerInLines, NDJSON, SILENT, type Telling } from '../admin/progress.ts';

interface Streamed {
  readonly stream: StreamedOperation;
  readonly caller: Caller;
  readonly query: unknown;
}

/** Endpoints whose body is read as it comes: one at a time, as what is read of it may be large. */
export function streamedAnswers(core: Core, log: Log) {
  let isBusy = false;
  return async (
    { stream, caller, query }: Streamed,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> => {
    let isOurs = false;
    try {
      requireType(stream, request.headers['content-type']);
      if (isBusy) throw busy();
      isBusy = isOurs = true;
      // Left open where it is not read to its end: the answer goes out on the same connection.
      const body = decodedBody(request).iterator({ destroyOnReturn: false });
      const work = await stream.read(core, caller, body, query);
      if (request.headers.accept !== NDJSON) {
        sendJson(response, 200, await work(SILENT));
        return;
      }
      await sendLines(response, work, log);
    } catch (error) {
      await letGoBy(request);
      if (!response.headersSent) addHeaders(response, { Connection: 'close' });
      throw error;
    } finally {
      if (isOurs) isBusy = false;
    }
  };
}

/** Answers with lines of progress and the result, or the problem, in the last one. */
export async function sendLines(
  response: ServerResponse,
  work: (telling: Telling) => Promise<unknown>,
  log: Log,
): Promise<void> {
  writeHead(response, 200, { 'Content-Type': NDJSON });
  const { requestId } = localsOf(response);
  await answerInLines(response, work, thrown => {
    const error = errorOf(thrown);
    // Who has gone has ended the work, and hears nothing of it.
    if (error.code === 'internal' && !response.destroyed)
      log.error({ err: thrown, requestId }, 'request failed');
    return problemOf(error, requestId);
  });
}

const busy = () =>
  new SwitchboardError('unavailable', 'Another import is under way. Send this one again when it is done.', {
    retryAfterSec: 5,
  });
