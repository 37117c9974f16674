/** What a JSON text holds outside its strings. */
interface JsonShape {
  /** The deepest nesting of brackets. */
  readonly depth: number;
  /** Objects and arrays. */
  readonly containers: number;
  /** Members of objects. */
  readonly members: number;
}

export function shapeOf(json: Uint8Array): JsonShape {
  let level = 0;
  let depth = 0;
  let containers = 0;
  let members = 0;
  let inString = false;
  for (let at = 0; at < json.length; at++) {
    const byte = json[at];
    if (inString) {
      if (byte === 0x5c) at++;
      else if (byte === 0x22) inString = false;
    } else if (byte === 0x22) inString = true;
    else if (byte === 0x3a) members++;
    else if (byte === 0x7b || byte === 0x5b) {
      containers++;
      depth = Math.max(depth, ++level);
    } else if (byte === 0x7d || byte === 0x5d) level--;
  }
  return { depth, containers, members };
}

/** The deepest nesting of brackets outside strings. */
export const depthOf = (json: Uint8Array): number => shapeOf(json).depth;
