import type { TestProject } from 'vitest/node';
import { template } from './database.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The folder of a migrated embedded database, to be copied. */
    pgliteTemplate: string;
  }
}

/** Makes the embedded database that the tests copy, before two of them would. */
export default async function setup(project: TestProject): Promise<void> {
  project.provide('pgliteTemplate', await template());
}
