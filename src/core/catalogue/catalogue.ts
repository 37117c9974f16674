import { SwitchboardError } from '../../errors.ts';
import { nearest } from '../../platform/closest-names.ts';
import { quoted, sanitise } from '../../platform/sanitize.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { slices } from '../../platform/yield.ts';
import type { Definition } from './tools/definitions.ts';
import type { Entry, Server } from './entry.ts';
import { endedBy, withoutOthers } from './precedence.ts';
import { readServers } from './read-servers.ts';
import {
  answering,
  deactivated,
  Overtaken,
  withdrawn,
  withToolsListed,
  type Rewriting,
} from './server-edits.ts';
import { sharing } from './store.ts';
import { serversOf } from './servers-of.ts';
import { Unseen } from './change-cursor.ts';
import { writeChange, type Alongside, type PutOptions } from './write-change.ts';

/** What changed: `upserted` servers are active; `removed` ids are no longer to be found by a search. */
export interface CatalogueChange {
  readonly upserted: readonly Server[];
  readonly removed: readonly string[];
  /** Every server that is active after it, where all of it is to be seen at once. */
  readonly whole?: readonly Server[];
  /** Ids whose entries were left out, since they belong to somebody else (`precedence.ts`). */
  readonly left?: readonly string[];
}

interface RefreshOptions extends Pick<PutOptions, 'alongside' | 'signal'> {
  readonly unlessSame?: boolean;
  readonly maxNews?: number;
}

/** Hears how many of the texts that had to be embedded are. */
export type OnProgress = (progress: { readonly done: number; readonly of: number }) => void;

/**
 * Makes a change ready (which may take minutes, and may fail) and resolves with the step that puts it into effect, which
 * is quick. Nothing is seen of a change before that step.
 */
export type PrepareChange = (
  change: CatalogueChange,
  onProgress?: OnProgress,
  signal?: AbortSignal,
) => Promise<() => Promise<void>>;

/**
 * Every catalogued server, in memory over the database. A write is made ready in the search index first, then committed in
 * one transaction, then seen by calls and searches at once: whatever fails before leaves everything as it was, and a crash
 * leaves the database, from which the next start reads, with all of the change or none. Writes run one after another.
 */
export class Catalogue {
  readonly #db: Database;
  readonly #log: Log | undefined;
  readonly #byId = new Map<string, Server>();
  #prepare: PrepareChange = () => Promise.resolve(() => Promise.resolve());
  #onReinstated: (ids: readonly string[]) => void = () => {};
  #writing: Promise<unknown> = Promise.resolve();
  /** Writes under way or waiting. */
  #writes = 0;
  /** Whether the search index holds every active server as it is here. */
  #isIndexed = false;
  /** What other processes write; undefined where there are none. */
  readonly #unseen: Unseen | undefined;

  private constructor(db: Database, log: Log | undefined, unseen: Unseen | undefined) {
    this.#db = db;
    this.#log = log;
    this.#unseen = unseen;
  }

  /** @param shared whether other processes write to the same database (see `catchUp`) */
  static async load(db: Database, log?: Log, { shared = false } = {}): Promise<Catalogue> {
    const catalogue = new Catalogue(db, log, shared ? await Unseen.fromNow(db) : undefined);
    for (const server of await readServers(db)) catalogue.#byId.set(server.id, server);
    return catalogue;
  }

  /** The search index takes part in every write from now on. Resolves once it holds every active server. */
  attachIndex(prepare: PrepareChange): Promise<void> {
    this.#prepare = prepare;
    return this.reindex(prepare);
  }

  /** Calls the listener with servers that were inactive for not answering, once a write has made them active again. */
  onReinstated(listener: (ids: readonly string[]) => void): void {
    this.#onReinstated = listener;
  }

  /** Has every active server prepared again, between two writes; resolves once that is in effect. */
  reindex(prepare: PrepareChange): Promise<void> {
    return this.#exclusively(async () => {
      const takeEffect = await prepare({ upserted: [...this.active()], removed: [] });
      await takeEffect();
      this.#isIndexed = true;
    });
  }

  get(id: string): Server | undefined {
    return this.#byId.get(id);
  }

  /** @throws SwitchboardError `server_not_found` (404) or `server_inactive` (410). */
  require(id: string): Server {
    const server = this.#byId.get(id);
    if (server?.active) return server;
    if (!server) throw new SwitchboardError('server_not_found', notFound(id, this.active()));
    const why = server.unanswered
      ? ': it has not answered for 30 days. It becomes active again when it answers a health check'
      : '';
    throw new SwitchboardError('server_inactive', `The server ${id} is no longer active${why}.`);
  }

  /** An equal entry that takes no memory for what is catalogued as it is in it. */
  sharing(entry: Entry): Entry {
    return sharing(entry, this.#byId.get(entry.id));
  }

  *active(): Generator<Server> {
    for (const server of this.#byId.values()) if (server.active) yield server;
  }

  /** The active ones, and those that are inactive only since they do not answer. */
  *standing(): Generator<Server> {
    for (const server of this.#byId.values()) if (server.active || server.unanswered) yield server;
  }

  get activeCount(): number {
    let count = 0;
    for (const server of this.#byId.values()) if (server.active) count++;
    return count;
  }

  /**
   * Adds or rewrites entries, all or none. An id that stands twice counts with its last entry. With `replace`, every
   * active server of the same reach that is not among them becomes inactive: `operator` replaces the whole catalogue,
   * `shipped` only what was shipped. What an operator's replacement ends is the operator's from then on: an upgrade does
   * not bring it back. A shipped entry never overwrites an operator's, and a registry's none but its own.
   */
  put(entries: readonly Entry[], options: PutOptions): Promise<CatalogueChange> {
    return this.#exclusively(() => this.#put(entries, options));
  }

  async #put(entries: readonly Entry[], options: PutOptions): Promise<CatalogueChange> {
    const { origin, replace = false, keep, registry, alongside, onProgress, signal } = options;
    const writer = { origin, replace, keep, registry };
    const writing = { origin, registry, pause: slices(signal) };
    const wanted = await serversOf(entries, writing, this.#byId, this.#log);
    const left = withoutOthers(wanted, writer, this.#byId);
    const gone = endedBy(wanted, writer, new Set(left), this.standing());
    const moved = [...wanted.values()].flatMap(({ id, remoteUrl }) => {
      const old = this.#byId.get(id);
      return old && old.remoteUrl !== remoteUrl ? id : [];
    });
    const broughtBack = [...wanted.keys()].filter(id => this.#byId.get(id)?.unanswered);
    let change: CatalogueChange = {
      upserted: [...wanted.values()],
      removed: gone.map(server => server.id),
      left,
    };
    // What is indexed as it is stays.
    const upserted = change.upserted.filter(
      server => !this.#isIndexed || this.#byId.get(server.id) !== server,
    );
    const whole = replace ? { whole: this.#activeAfter(wanted, gone) } : {};
    const failing = new AbortController();
    const ended = AbortSignal.any([failing.signal, ...(signal ? [signal] : [])]);
    const takeEffect = await this.#prepare({ ...change, upserted, ...whole }, onProgress, ended);
    try {
      const source = registry?.source;
      const stored = { ...change, origin, source, moved, broughtBack, alongside, signal };
      change = await this.#db.transaction(tx => writeChange(tx, stored));
    } catch (error) {
      failing.abort(error);
      throw error;
    }
    for (const server of change.upserted) this.#byId.set(server.id, server);
    const written = new Set(change.upserted.map(({ id }) => id));
    this.#onReinstated(broughtBack.filter(id => written.has(id)));
    const removed = new Set(change.removed);
    for (const server of gone)
      if (removed.has(server.id)) this.#byId.set(server.id, withdrawn(server, origin));
    await takeEffect();
    return change;
  }

  #activeAfter(wanted: ReadonlyMap<string, Server>, gone: readonly Server[]): Server[] {
    const ended = new Set(gone);
    const staying = [...this.active()].filter(server => !wanted.has(server.id) && !ended.has(server));
    return [...staying, ...wanted.values()];
  }

  /**
   * Puts the tools a server lists itself, the same for everybody, in the place of those the catalogue has of it, and keeps
   * what else is known of the server. Nothing happens to a server that is inactive or elsewhere by now, and an empty listing
   * (of a server that shows its tools only to those signed in, say) changes nothing.
   * @param nowMs when they were listed
   * @param unlessSame true: a listing that is the same as before is not written again, not even when it was
   * @param maxNews tools that are new or changed, beyond as many of which they stay what they were
   * @param signal ends it, with its reason and everything as it was, until it is committed
   */
  async refreshTools(
    server: Pick<Server, 'id' | 'remoteUrl'>,
    definitions: readonly Definition[],
    nowMs: number,
    { alongside, signal, unlessSame = false, maxNews = Infinity }: RefreshOptions = {},
  ): Promise<void> {
    const source = { definitions, nowMs, unlessSame, maxNews, db: this.#db, log: this.#log };
    await this.#rewrite(server.id, withToolsListed(server, source), alongside, signal);
  }

  /**
   * Takes a server out of search and calls (410 from then on). The row becomes the operator's, so that an upgrade does
   * not bring it back. @throws SwitchboardError `server_not_found`. */
  async deactivate(id: string, alongside?: Alongside): Promise<Server> {
    await this.#rewrite(id, deactivated, alongside);
    return this.get(id) ?? this.require(id);
  }

  /**
   * Makes an active server inactive since it does not answer, or one that is inactive for that active again. Nothing happens where
   * it is neither, or elsewhere by now: what somebody else has ended stays so. Resolves to whether it was done.
   */
  async setUnanswered(
    server: Pick<Server, 'id' | 'remoteUrl'>,
    unanswered: boolean,
    alongside?: Alongside,
  ): Promise<boolean> {
    try {
      return await this.#rewrite(server.id, answering(server, unanswered), alongside);
    } catch (error) {
      if (error instanceof Overtaken) return false;
      throw error;
    }
  }

  /** Prepares, stores and then shows it. Resolves to whether there was anything to do. */
  #rewrite(id: string, rewriting: Rewriting, alongside?: Alongside, signal?: AbortSignal): Promise<boolean> {
    return this.#exclusively(async () => {
      signal?.throwIfAborted();
      const rewrite = await rewriting(this.#byId.get(id));
      if (!rewrite) return false;
      const { server, isFound, write } = rewrite;
      const change = server.active ? { upserted: [server], removed: [] } : { upserted: [], removed: [id] };
      const failing = new AbortController();
      const ended = AbortSignal.any([failing.signal, ...(signal ? [signal] : [])]);
      const takeEffect = isFound ? await this.#prepare(change, undefined, ended) : undefined;
      try {
        await this.#db.transaction(async tx => {
          await write(tx);
          await alongside?.(tx, change);
          signal?.throwIfAborted();
        });
      } catch (error) {
        failing.abort(error);
        throw error;
      }
      this.#byId.set(id, server);
      await takeEffect?.();
      return true;
    });
  }

  /** Whether a further write would have to wait. */
  get isWriting(): boolean {
    return this.#writes > 0;
  }

  /** Resolves when no write is under way. */
  async settled(): Promise<void> {
    await this.#writing;
  }

  /**
   * Brings what other processes have written since into memory and into the index. Between two writes, never during one: what
   * is read then has all that was written here, too, so that the last one to write a server is right everywhere.
   */
  catchUp(): Promise<void> {
    return this.#inTurn(async () => this.#unseen?.takeOver(this.#byId, this.#prepare));
  }

  #exclusively<T>(write: () => Promise<T>): Promise<T> {
    this.#writes++;
    const upToDate = async () => {
      // What keeps others' changes from being taken over is no reason to refuse one made here.
      await this.#unseen?.takeOver(this.#byId, this.#prepare).catch(() => {});
      return write();
    };
    return this.#inTurn(upToDate).finally(() => this.#writes--);
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const running = this.#writing.then(work);
    this.#writing = running.catch(() => {});
    return running;
  }
}

const MAX_MEANT = 3;
/** Ids that a misspelt one is compared with. */
const MAX_SIMILAR = 300;

/** Callers take a server's name for its id, or misspell the id. */
function notFound(id: string, servers: Iterable<Server>): string {
  const called = id.trim().toLowerCase();
  const words = called.split(/[^\p{L}\p{N}]+/u).filter(word => word.length > 2);
  const named: Server[] = [];
  const worded: Server[] = [];
  const similar = new Map<string, Server>();
  for (const server of servers) {
    if (server.name.toLowerCase() === called || server.id === called) named.push(server);
    else if (words.length > 1 && words.every(word => saysWord(server, word))) worded.push(server);
    else if (similar.size < MAX_SIMILAR && isSimilar(server.id, called, words))
      similar.set(server.id, server);
  }
  const sure = [...named, ...worded];
  const near =
    sure.length > 0
      ? sure
      : nearest(called, similar.keys(), MAX_MEANT).flatMap(one => similar.get(one) ?? []);
  const meant = near.slice(0, MAX_MEANT).map(server => `${quoted(server.id)} (${sanitise(server.name, 80)})`);
  const hint = meant.length === 0 ? '' : ` Did you mean ${meant.join(' or ')}?`;
  return `No server has the id ${quoted(id)}.${hint} Search for the server to find its id.`;
}

const saysWord = ({ id, name }: Server, word: string) =>
  id.includes(word) || name.toLowerCase().includes(word);

/** Shares a word, or begins alike and is about as long: cheap to tell for each server of a large catalogue. */
const isSimilar = (id: string, called: string, words: readonly string[]): boolean =>
  words.some(word => id.includes(word)) || (id[0] === called[0] && Math.abs(id.length - called.length) <= 2);
