import type { Catalogue } from '../../../src/core/catalogue/catalogue.ts';

/** Returns a whole server of the catalogue, active or not. */
export const wholeOf = async (catalogue: Pick<Catalogue, 'read'>, id: string) =>
  (await catalogue.read([id])).get(id);
