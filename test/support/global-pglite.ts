import { template } from './database.ts';

/** Makes the embedded database that the tests copy, before two of them would. */
export default async function setup(): Promise<void> {
  await template();
}
