import type { ServerResponse } from 'node:http';
import type { OnProgress } from '../core/catalogue/catalogue.ts';

export const NDJSON = 'application/x-ndjson';
/** A line at most so often, but always one when a step is done. */
const EVERY_MS = 100;

/** What whoever waits for long work is told meanwhile. */
export interface Telling {
  readonly onProgress: OnProgress;
  /** A sentence for people. */
  readonly onNotice: (notice: string) => void;
}

export const SILENT: Telling = { onProgress: () => {}, onNotice: () => {} };

/**
 * Answers with what long work gives, for who accepts `application/x-ndjson`: lines `{"progress": {done, of}}` and
 * `{"notice": …}` and a last one `{"result": …}` or `{"problem": …}`. The head is written already.
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
  const onProgress: OnProgress = progress => {
    const now = performance.now();
    if (now - toldAt < EVERY_MS && progress.done < progress.of) return;
    toldAt = now;
    tell({ progress });
  };
  try {
    tell({ result: await work({ onProgress, onNotice: notice => tell({ notice }) }) });
  } catch (error) {
    tell({ problem: problemOf(error) });
  }
  response.end();
}
