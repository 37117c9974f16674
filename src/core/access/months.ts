/** A calendar month (UTC), in milliseconds since the epoch; `endMs` belongs to the next one. */
export interface Month {
  readonly startMs: number;
  readonly endMs: number;
}

let current: Month = { startMs: 0, endMs: 0 };

/** The month that a time is in. */
export function monthOf(timeMs: number): Month {
  if (timeMs >= current.startMs && timeMs < current.endMs) return current;
  const date = new Date(timeMs);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
  current = { startMs: Date.UTC(year, month, 1), endMs: Date.UTC(year, month + 1, 1) };
  return current;
}

const DAY_MS = 86_400_000;
let day = { number: Number.NaN, text: '' };

/** The date of a time, `2026-11-21` (UTC). The last one is kept: to write a date takes longer than to count. */
export function dayOf(timeMs: number): string {
  const number = Math.floor(timeMs / DAY_MS);
  if (day.number !== number) day = { number, text: new Date(number * DAY_MS).toISOString().slice(0, 10) };
  return day.text;
}
