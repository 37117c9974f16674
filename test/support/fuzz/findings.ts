import type { FuzzAnswer, FuzzRequest } from './send.ts';

/** What was found, each problem once with the smallest request that shows it; and how the answers went. */
export class Findings {
  readonly #found = new Map<string, { readonly shown: string; readonly size: number }>();
  /** How many answers had this status, by family: `valid 200`. */
  readonly statuses = new Map<string, number>();
  sent = 0;

  add(name: string, request: FuzzRequest, answer: FuzzAnswer, problems: readonly string[]): void {
    this.sent++;
    const status = `${request.family} ${answer.status}`;
    this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
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
