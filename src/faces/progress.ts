import type { ServerResponse } from 'node:http';
import type { OnProgress } from '../core/catalogue/catalogue.ts';

export const NDJSON = 'application/x-ndjson';
/** A line at most so often, but always one when a step is done. */
const EVERY_MS = 100;

/**
 * Answers with what long work gives, for who accepts `application/x-ndjson`: lines `{"progress": {done, of}}` and a last one
 * `{"result": …}` or `{"problem": …}`. The head is written already. The work does not end with the connection.
 * @param problemOf how the face words what the work threw
 */
export async function answerInLines(
  response: ServerResponse,
  work: (onProgress: OnProgress) => Promise<unknown>,
  problemOf: (thrown: unknown) => unknown,
): Promise<void> {
  response.flushHeaders();
  const tell = (line: object) => {
    // What is not read waits in memory, but these are few and short.
    if (!response.destroyed) response.write(`${JSON.stringify(line)}\n`);
  };
  let toldAt = -Infinity;
  try {
    const result = await work(progress => {
      const now = performance.now();
      if (now - toldAt < EVERY_MS && progress.done < progress.of) return;
      toldAt = now;
      tell({ progress });
    });
    tell({ result });
  } catch (error) {
    tell({ problem: problemOf(error) });
  }
  response.end();
}
