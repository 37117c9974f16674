/**
 * Reads a `Retry-After` header, in seconds or as a date (RFC 9110 §10.2.3).
 * @param nowMs the present by the wall clock, in milliseconds since the epoch
 * @returns milliseconds to wait, 0 for a time that has passed; undefined for a value of neither form
 */
export function retryAfterMs(
  value: string | readonly string[] | null | undefined,
  nowMs: number,
): number | undefined {
  const text = (typeof value === 'string' ? value : value?.[0])?.trim() ?? '';
  if (/^\d+$/.test(text)) return Number(text) * 1_000;
  // Date.parse also takes "-5" and "1.5" for dates.
  const atMs = /[A-Za-z]/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - nowMs);
}
