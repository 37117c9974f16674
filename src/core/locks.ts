/**
 * Locks shared by all processes on a database. The numbers are arbitrary but must never change, because two
 * versions may run together.
 */
export const LOCKS = { sync: 0x5b_5c, probing: 0x5b_5d } as const;
