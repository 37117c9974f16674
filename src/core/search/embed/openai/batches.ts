/** UTF-16 units of a text that are sent: about 2,000 tokens of English and at most about 8,000 of any script. */
const MAX_TEXT_UNITS = 6_000;
/** A request's texts together, so that none is larger than a few hundred kilobytes. */
const MAX_REQUEST_UNITS = 100_000;

/** The text as it is sent: cut to what a model takes, never within a character, and never empty, which APIs refuse. */
export function sendable(text: string, maxUnits = MAX_TEXT_UNITS): string {
  if (text.trim() === '') return '-';
  return text.length <= maxUnits ? text : text.slice(0, maxUnits).toWellFormed();
}

/** Positions of `texts` in groups of at most `maxTexts`, none with more than 100,000 units unless it is one text. */
export function batchesOf(texts: readonly string[], maxTexts: number): number[][] {
  const batches: number[][] = [];
  let batch: number[] = [];
  let units = 0;
  for (const [position, text] of texts.entries()) {
    if (batch.length > 0 && (batch.length === maxTexts || units + text.length > MAX_REQUEST_UNITS)) {
      batches.push(batch);
      batch = [];
      units = 0;
    }
    batch.push(position);
    units += text.length;
  }
  if (batch.length > 0) batches.push(batch);
  return batches;
}
