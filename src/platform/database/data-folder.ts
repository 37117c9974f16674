import { existsSync } from 'node:fs';
import path from 'node:path';

/** Returns the path of the control socket, which is also the lock of the data folder. */
export const controlSocketOf = (dataDir: string): string => path.join(dataDir, 'control.sock');

/** Returns the folder of the embedded database. */
export const databaseFolderOf = (dataDir: string): string => path.join(dataDir, 'pglite');

/** Returns whether the data folder already has an embedded database. */
export const hasDatabase = (dataDir: string): boolean => existsSync(databaseFolderOf(dataDir));
