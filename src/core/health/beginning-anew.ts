import type { Catalogue, PrepareChange } from '../catalogue/catalogue.ts';
import type { HealthBoard } from './health-board.ts';

/** The same, and servers that were inactive since they did not answer begin anew on the board with the change that has them active. */
export const beginningAnew =
  (board: HealthBoard, catalogue: Pick<Catalogue, 'get'>, prepare: PrepareChange): PrepareChange =>
  async (change, ...rest) => {
    const broughtBack = change.upserted.filter(({ id }) => catalogue.get(id)?.unanswered);
    const takeEffect = await prepare(change, ...rest);
    return () => {
      for (const { id } of broughtBack) board.beginAnew(id);
      return takeEffect();
    };
  };
