import { SETTINGS } from '../../src/config/index.ts';

/** The names of the environment variables that the program reads. */
export const settings: ReadonlySet<string> = new Set(SETTINGS.flatMap(group => Object.keys(group.settings)));
