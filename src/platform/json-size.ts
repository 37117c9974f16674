/** Deeper nesting counts as endless: what walks JSON by calls has a stack to mind. */
const MAX_DEPTH = 128;

/** Values, and letters divided by `charsPerUnit`; infinite for what is nested too deep. Stops counting above `max`. */
export function jsonSizeOf(root: unknown, charsPerUnit: number, max: number): number {
  let size = 0;
  const add = (value: unknown, depth: number): void => {
    size++;
    if (depth > MAX_DEPTH) size = Infinity;
    if (typeof value === 'string') size += Math.floor(value.length / charsPerUnit);
    else if (Array.isArray(value)) {
      for (const member of value) {
        if (size > max) return;
        add(member, depth + 1);
      }
    } else if (typeof value === 'object' && value !== null) {
      for (const name in value) {
        if (size > max) return;
        size += Math.floor(name.length / charsPerUnit);
        add((value as Readonly<Record<string, unknown>>)[name], depth + 1);
      }
    }
  };
  add(root, 0);
  return size;
}
