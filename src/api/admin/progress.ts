import type { ServerResponse } from 'node:http';
import type { OnProgress } from '../../core/catalogue/catalogue.ts';

export const NDJSON = 'application/x-ndjson';
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

export const SILENT: Telling = { onProgress: () => {}, onListed: () => {}, onNotice: () => {} };

/**
 * Answers with what long work gives, for who accepts `application/x-ndjson`: lines `{"progress": {done, of}}`, `{"listed": …}` and
 * `{"notice": …}` and a last one `{"result": …}` or `{"problem": …}`.
 * @param problemOf how the face words what the work threw
 */
export async function answerInLines(
  response: ServerResponse,
  work: (telling: Telling) => Promise<unknown>,
  problemOf: (thrown: unknown) => unknown,
): Promise<void> {
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
    tell({ problem: problemOf(error) });
  }
  response.end();
}
