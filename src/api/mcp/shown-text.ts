/**
 * The room that one result may take in an agent's context, in bytes of UTF-8. Clients cut longer ones themselves, where nobody can read on:
 * Codex keeps 48,000 bytes, Claude Code 50,000 characters, and 10,000 characters of an error (measured 2026-11).
 */
export const MAX_SHOWN_BYTES = 44_000;
export const MAX_SHOWN_ERROR_BYTES = 9_000;

/** Writes a number with its thousands apart. */
export const count = (value: number): string => value.toLocaleString('en-US');

/** The first code points of a text, as many as fit into so many bytes of UTF-8. */
export function headOf(words: string, maxBytes: number): string {
  let bytes = 0;
  let at = 0;
  while (at < words.length) {
    const point = words.codePointAt(at) ?? 0;
    bytes += bytesOf(point);
    if (bytes > maxBytes) break;
    at += point > 0xff_ff ? 2 : 1;
  }
  return words.slice(0, at);
}

function bytesOf(codePoint: number): number {
  if (codePoint < 0x80) return 1;
  if (codePoint < 0x8_00) return 2;
  return codePoint > 0xff_ff ? 4 : 3;
}
