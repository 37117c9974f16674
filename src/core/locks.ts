/** Locks of all processes on the database: any numbers, but the same in every version, as two may run together. */
export const LOCKS = { sync: 0x5b_5c, probing: 0x5b_5d } as const;
