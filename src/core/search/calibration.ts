/** A cosine and the share of servers found with it that are relevant; of a table, both columns ascend. */
export type CalibrationPoint = readonly [cosine: number, probability: number];

/**
 * The probability that a server found with this cosine is relevant, 0 to 1: between two points of the table on the line
 * between them, beyond its ends towards (-1, 0) and (1, 1). Without a table it is the cosine itself, at least 0.
 */
export function calibrate(cosine: number, table: readonly CalibrationPoint[] | undefined): number {
  if (!table || Number.isNaN(cosine)) return Math.min(1, Math.max(0, cosine || 0));
  let below: CalibrationPoint = [-1, 0];
  for (const point of [...table, [1, 1] as const]) {
    if (cosine <= point[0]) return between(below, point, cosine);
    below = point;
  }
  return 1;
}

function between([x0, y0]: CalibrationPoint, [x1, y1]: CalibrationPoint, x: number): number {
  if (x <= x0) return y0;
  return y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}
