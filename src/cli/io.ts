/** Where a command's answer goes; logs and errors go to stderr. */
export interface Io {
  /** A line, or several, on stdout. */
  print(text: string): void;
  /** A line on stderr. */
  complain(text: string): void;
  /** Puts this in the place of stderr's last line; an empty text clears it. Undefined where stderr is no terminal. */
  readonly status: ((text: string) => void) | undefined;
}

const ERASE_LINE = '\r\u001B[K';

export const processIo: Io = {
  print: text => void process.stdout.write(`${text}\n`),
  complain: text => void process.stderr.write(`${text}\n`),
  status: process.stderr.isTTY
    ? text => void process.stderr.write(`${ERASE_LINE}${text.slice(0, process.stderr.columns - 1)}`)
    : undefined,
};

/**
 * Rows as aligned columns. Names come from end users and identity providers: what would move the cursor, colour the terminal
 * or turn text around is shown as a question mark.
 */
export function table(cells: readonly (readonly string[])[]): string {
  const rows = cells.map(row => row.map(cell => cell.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '?')));
  const widths = rows.reduce<number[]>(
    (max, row) => row.map((cell, at) => Math.max(max[at] ?? 0, cell.length)),
    [],
  );
  return rows
    .map(row =>
      row
        .map((cell, at) => cell.padEnd(widths[at] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
