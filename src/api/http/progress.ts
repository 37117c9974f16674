import type { ServerResponse } from 'node:http';
import type { OnProgress } from '../../core/catalogue/catalogue.ts';

export const NDJSON = 'application/x-ndjson';
/** The shortest time between two lines of progress; the line of a finished step is always sent. */
const EVERY_MS = 100;

/** Hears how far long work is. */
export interface ProgressListener {
  readonly onProgress: OnProgress;
  /** Hears how many entries of a registry have been read. */
  readonly onListed: (entries: number) => void;
  /** Hears a sentence for people. */
  readonly onNotice: (notice: string) => void;
}

export const SILENT: ProgressListener = { onProgress: () => {}, onListed: () => {}, onNotice: () => {} };

/**
 * Answers with the progress of long work: lines `{"progress": {done, of}}`, `{"listed": …}` and `{"notice": …}`, and a last one
 * `{"result": …}` or `{"problem": …}`.
 * @param problemOf turns what the work threw into problem details
 */
export async function answerInLines(
  response: ServerResponse,
  work: (progress: ProgressListener) => Promise<unknown>,
  problemOf: (thrown: unknown) => unknown,
): Promise<void> {
  response.flushHeaders();
  const write = (line: object) => {
    // Lines that are not read wait in memory, but they are few and short.
    if (!response.destroyed) response.write(`${JSON.stringify(line)}\n`);
  };
  let writtenAt = -Infinity;
  const writeSometimes = (line: object, isLast: boolean) => {
    const now = performance.now();
    if (now - writtenAt < EVERY_MS && !isLast) return;
    writtenAt = now;
    write(line);
  };
  const onProgress: OnProgress = progress => writeSometimes({ progress }, progress.done === progress.of);
  const onListed = (listed: number) => writeSometimes({ listed }, false);
  try {
    write({ result: await work({ onProgress, onListed, onNotice: notice => write({ notice }) }) });
  } catch (error) {
    write({ problem: problemOf(error) });
  }
  response.end();
}
