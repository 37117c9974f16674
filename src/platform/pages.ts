/**
 * Yields the items in arrays. An array ends with the item with which the sum of weights reaches `full`; the last one may end
 * earlier.
 */
export async function* pagesOf<T>(
  items: Iterable<T> | AsyncIterable<T>,
  full: number,
  weightOf: (item: T) => number,
): AsyncGenerator<T[]> {
  let page: T[] = [];
  let weight = 0;
  for await (const item of items) {
    page.push(item);
    weight += weightOf(item);
    if (weight < full) continue;
    yield page;
    page = [];
    weight = 0;
  }
  if (page.length > 0) yield page;
}
