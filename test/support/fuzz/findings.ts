import type { FuzzAnswer, FuzzRequest } from './send.ts';

/** What was found, each problem once with the smallest request that shows it. */
export class Findings {
  readonly #found = new Map<string, { readonly shown: string; readonly size: number }>();
  /** How many answers were a 200: without one the operation itself was never reached. */
  succeeded = 0;

  add(name: string, request: FuzzRequest, answer: FuzzAnswer, problems: readonly string[]): void {
    if (answer.status === 200) this.succeeded++;
    for (const problem of problems) {
      const key = `${name}: ${problem}`;
      const shown = JSON.stringify({ ...request, body: request.body?.toString() });
      if (shown.length < (this.#found.get(key)?.size ?? Infinity))
        this.#found.set(key, {
          shown: `${key}\n  ${shown.slice(0, 600)}\n  ${answer.status} ${answer.text.slice(0, 300)}`,
          size: shown.length,
        });
    }
  }

  list(): string[] {
    return [...this.#found.values()].map(({ shown }) => shown);
  }
}
