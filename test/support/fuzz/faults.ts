type Fault = readonly [isThere: boolean, what: string];

/** Those that are there, in words. */
export const faults = (...all: readonly Fault[]): string[] =>
  all.filter(([isThere]) => isThere).map(([, what]) => what);
