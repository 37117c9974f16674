import type { Request, Response } from 'express';
import type { OnProgress } from '../../core/catalogue/catalogue.ts';
import type { Log } from '../../infra/log.ts';
import { refusalOf } from './refusal.ts';

const NDJSON = 'application/x-ndjson';
/** A line at most so often, but always one when a step is done. */
const EVERY_MS = 100;

/** What whoever waits for long work is told meanwhile. */
export interface Telling {
  readonly onProgress: OnProgress;
  /** How many entries of a registry have been read. */
  readonly onListed: (entries: number) => void;
  /** A sentence for people. */
  readonly onNotice: (notice: string) => void;
}

/**
 * Answers with what long work gives: as JSON, or, for who accepts `application/x-ndjson`, as lines `{"progress": {done, of}}`,
 * `{"listed": …}` and `{"notice": …}` and a last one `{"result": …}` or `{"problem": …}`.
 */
export async function answerWithProgress(
  request: Request,
  response: Response,
  log: Log,
  work: (telling: Telling) => Promise<unknown>,
): Promise<void> {
  if (request.headers.accept !== NDJSON) {
    response.json(await work({ onProgress: () => {}, onListed: () => {}, onNotice: () => {} }));
    return;
  }
  response.setHeader('Content-Type', NDJSON);
  response.flushHeaders();
  const tell = (line: object) => {
    // What is not read waits in memory, but these are few and short.
    if (!response.destroyed) response.write(`${JSON.stringify(line)}\n`);
  };
  let toldAt = -Infinity;
  const tellNowAndThen = (line: object, isLast: boolean) => {
    const now = performance.now();
    if (now - toldAt < EVERY_MS && !isLast) return;
    toldAt = now;
    tell(line);
  };
  const onProgress: OnProgress = progress => tellNowAndThen({ progress }, progress.done === progress.of);
  const onListed = (listed: number) => tellNowAndThen({ listed }, false);
  try {
    tell({ result: await work({ onProgress, onListed, onNotice: notice => tell({ notice }) }) });
  } catch (error) {
    tell({ problem: refusalOf(error, log).problem });
  }
  response.end();
}
