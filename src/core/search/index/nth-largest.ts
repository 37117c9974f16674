/** The nth largest of the values (1 is the largest), found by quickselect (Hoare 1961); -Infinity where there are fewer. No value is NaN. */
export function nthLargest(values: ArrayLike<number>, n: number): number {
  if (n > values.length) return -Infinity;
  const left = Float64Array.from(values);
  const wanted = values.length - n;
  let low = 0;
  let high = left.length - 1;
  while (low < high) {
    const [before, after] = partition(left, low, high);
    if (wanted <= before) high = before;
    else if (wanted >= after) low = after;
    else break;
  }
  return left[wanted] ?? -Infinity;
}

/** Moves what is below the middle value before what is above it. Returns where the one ends and where the other begins; what lies between is that value. */
function partition(values: Float64Array, low: number, high: number): [number, number] {
  const pivot = values[(low + high) >>> 1] ?? 0;
  let up = low;
  let down = high;
  while (up <= down) {
    while ((values[up] ?? 0) < pivot) up++;
    while ((values[down] ?? 0) > pivot) down--;
    if (up > down) break;
    const value = values[up] ?? 0;
    values[up++] = values[down] ?? 0;
    values[down--] = value;
  }
  return [down, up];
}
