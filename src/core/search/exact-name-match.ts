import type { Catalogue } from '../catalogue/catalogue.ts';
import { withoutBrackets } from './answerability.ts';
import { putFirst, type RankedServer } from './ranking.ts';

/**
 * Finds servers by what they are called, among all of the catalogue: common words make a server no candidate by its name alone,
 * and an id is not among its words.
 */
export class Called {
  readonly #catalogue: Pick<Catalogue, 'active' | 'get'>;
  #byName = new Map<string, string[]>();
  #epoch = -1;

  constructor(catalogue: Pick<Catalogue, 'active' | 'get'>) {
    this.#catalogue = catalogue;
  }

  /**
   * Ids of the servers whose id or name the query is, in any case of letters and with or without what is in brackets.
   * @param epoch of the search index: the names are read anew when it has changed
   */
  idsFor(query: string, epoch: number): string[] {
    if (epoch !== this.#epoch) this.#read();
    this.#epoch = epoch;
    const called = query.toLowerCase();
    const id = this.#catalogue.get(called)?.active ? [called] : [];
    return [...new Set([...id, ...(this.#byName.get(called) ?? [])])];
  }

  /**
   * The ranking with the servers before all others whose id the query is, then those of that very name, then those it names in
   * another spelling. (Ids are given out once; names are whatever anyone calls a server.)
   * @param mayLead false: only its id puts it first
   */
  first(
    ranking: readonly RankedServer[],
    query: string,
    isNamed: (serverId: string) => boolean,
    mayLead: (serverId: string) => boolean,
  ): readonly RankedServer[] {
    const called = query.toLowerCase();
    const isCalled = (serverId: string) => this.#catalogue.get(serverId)?.name.toLowerCase() === called;
    const leading = (isChosen: (serverId: string) => boolean) => (serverId: string) =>
      isChosen(serverId) && mayLead(serverId);
    return [leading(isNamed), leading(isCalled), (serverId: string) => serverId === called].reduce(
      (ranked, isChosen) => putFirst(ranked, isChosen),
      ranking,
    );
  }

  #read(): void {
    this.#byName = new Map();
    for (const { id, name } of this.#catalogue.active()) {
      for (const called of new Set([name.toLowerCase(), withoutBrackets(name).toLowerCase()])) {
        const ids = this.#byName.get(called);
        if (ids) ids.push(id);
        else this.#byName.set(called, [id]);
      }
    }
  }
}
