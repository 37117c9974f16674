import { eq } from 'drizzle-orm';
import { SwitchboardError } from '../../errors.ts';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import { slices, type Pause } from '../../infra/slices.ts';
import { servers as table } from '../schema.ts';
import { readDefinitions, type Definition } from './definitions.ts';
import type { Entry, Server } from './entry.ts';
import { compareDefinitions, forgetDefinitions } from './live-definitions.ts';
import {
  INACTIVE,
  readServers,
  retireServers,
  sharing,
  toServer,
  writeServers,
  writeTools,
} from './server-rows.ts';
import { reportSuspicious, sameTexts } from './compared-tools.ts';
import { Unseen } from './unseen.ts';

type Origin = Server['origin'];
interface PutOptions {
  readonly origin: Origin;
  readonly replace?: boolean;
  /** Not made inactive by a replacement although they are not among the entries. */
  readonly keep?: ReadonlySet<string>;
  readonly onProgress?: OnProgress;
  /** Ends it, with its reason and everything as it was, until it is committed. */
  readonly signal?: AbortSignal;
}

/** What changed: `upserted` servers are active; `removed` ids are no longer to be found by a search. */
export interface CatalogueChange {
  readonly upserted: readonly Server[];
  readonly removed: readonly string[];
  /** Every server that is active after it, where all of it is to be seen at once. */
  readonly whole?: readonly Server[];
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
    if (!server) {
      throw new SwitchboardError(
        'server_not_found',
        `No server has the id ${JSON.stringify(id)}. A search finds ids.`,
      );
    }
    if (!server.active)
      throw new SwitchboardError('server_inactive', `The server ${id} is no longer active.`);
    return server;
  }

  /** An equal entry that takes no memory for what is catalogued as it is in it. */
  sharing(entry: Entry): Entry {
    return sharing(entry, this.#byId.get(entry.id));
  }

  *active(): Generator<Server> {
    for (const server of this.#byId.values()) if (server.active) yield server;
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
   * not bring it back. A shipped entry never overwrites an operator's.
   */
  put(entries: readonly Entry[], options: PutOptions): Promise<CatalogueChange> {
    return this.#exclusively(() => this.#put(entries, options));
  }

  async #put(entries: readonly Entry[], options: PutOptions): Promise<CatalogueChange> {
    const { origin, replace = false, keep, onProgress, signal } = options;
    const wanted = await this.#serversOf(entries, origin, slices(signal));
    if (origin === 'shipped') {
      for (const id of wanted.keys()) if (this.#byId.get(id)?.origin === 'operator') wanted.delete(id);
    }
    const isGone = (old: Server) =>
      !wanted.has(old.id) && !keep?.has(old.id) && (origin === 'operator' || old.origin === 'shipped');
    const gone = replace ? [...this.active()].filter(isGone) : [];
    const moved = [...wanted.values()].filter(({ id, remoteUrl }) => {
      const old = this.#byId.get(id);
      return old && old.remoteUrl !== remoteUrl;
    });
    const change = { upserted: [...wanted.values()], removed: gone.map(server => server.id) };
    // What is indexed as it is stays.
    const upserted = change.upserted.filter(
      server => !this.#isIndexed || this.#byId.get(server.id) !== server,
    );
    const whole = replace ? { whole: this.#activeAfter(wanted, gone) } : {};
    const failing = new AbortController();
    const ended = AbortSignal.any([failing.signal, ...(signal ? [signal] : [])]);
    const takeEffect = await this.#prepare({ ...change, upserted, ...whole }, onProgress, ended);
    try {
      await this.#db.transaction(async tx => {
        await writeServers(tx, change.upserted, signal);
        await forgetDefinitions(
          tx,
          moved.map(server => server.id),
        );
        await retireServers(tx, change.removed, origin);
        signal?.throwIfAborted();
      });
    } catch (error) {
      failing.abort(error);
      throw error;
    }
    for (const server of wanted.values()) this.#byId.set(server.id, server);
    for (const server of gone) this.#byId.set(server.id, { ...server, active: false, origin });
    await takeEffect();
    return change;
  }

  #activeAfter(wanted: ReadonlyMap<string, Server>, gone: readonly Server[]): Server[] {
    const ended = new Set(gone);
    const staying = [...this.active()].filter(server => !wanted.has(server.id) && !ended.has(server));
    return [...staying, ...wanted.values()];
  }

  async #serversOf(entries: readonly Entry[], origin: Origin, pause: Pause): Promise<Map<string, Server>> {
    const wanted = new Map<string, Server>();
    for (const entry of entries) {
      await pause();
      const { server, leftOut } = await toServer(entry, origin, { known: this.#byId.get(entry.id), pause });
      for (const tool of leftOut)
        this.#log?.warn({ serverId: server.id, tool, reason: 'invisible characters in its name' }, LEFT_OUT);
      reportSuspicious(this.#log, server, this.#byId.get(server.id));
      wanted.set(entry.id, server);
    }
    return wanted;
  }

  /**
   * Puts the tools a server lists itself, the same for everybody, in the place of those the catalogue has of it, and keeps
   * what else is known of the server. Nothing happens to a server that is inactive or elsewhere by now, and an empty listing
   * (of a server that shows its tools only to those signed in, say) changes nothing.
   * @param nowMs when they were listed.
   */
  refreshTools(
    { id, remoteUrl }: Pick<Server, 'id' | 'remoteUrl'>,
    definitions: readonly Definition[],
    nowMs: number,
  ): Promise<void> {
    return this.#exclusively(async () => {
      const server = this.#byId.get(id);
      if (!server?.active || server.remoteUrl !== remoteUrl || definitions.length === 0) return;
      const { tools: listed, leftOut } = await readDefinitions(definitions);
      for (const { tool, reason } of leftOut) this.#log?.warn({ serverId: id, tool, reason }, LEFT_OUT);
      const comparison = await compareDefinitions(this.#db, this.#log, {
        serverId: id,
        tools: listed,
        nowMs,
      });
      const { tools } = comparison;
      reportSuspicious(this.#log, { id, tools }, server);
      const refreshed: Server = { ...server, tools, toolsListedAt: nowMs };
      const takeEffect = sameTexts(tools, server.tools)
        ? undefined
        : await this.#prepare({ upserted: [refreshed], removed: [] });
      await this.#db.transaction(async tx => {
        await comparison.write(tx);
        await writeTools(tx, refreshed);
      });
      this.#byId.set(id, refreshed);
      await takeEffect?.();
    });
  }

  /**
   * Takes a server out of search and calls (410 from then on). The row becomes the operator's, so that an upgrade does
   * not bring it back. @throws SwitchboardError `server_not_found`. */
  deactivate(id: string): Promise<Server> {
    return this.#exclusively(() => this.#deactivate(id));
  }

  async #deactivate(id: string): Promise<Server> {
    const server = this.#byId.get(id) ?? this.require(id);
    const takeEffect = await this.#prepare({ upserted: [], removed: [id] });
    await this.#db
      .update(table)
      .set({ ...INACTIVE, origin: 'operator' })
      .where(eq(table.id, id));
    const inactive: Server = { ...server, active: false, origin: 'operator' };
    this.#byId.set(id, inactive);
    await takeEffect();
    return inactive;
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
    return this.#inTurn(() => this.#takeOver());
  }

  async #takeOver(): Promise<void> {
    await this.#unseen?.takeOver(this.#byId, this.#prepare);
  }

  #exclusively<T>(write: () => Promise<T>): Promise<T> {
    this.#writes++;
    const upToDate = async () => {
      // What keeps others' changes from being taken over is no reason to refuse one made here.
      await this.#takeOver().catch(() => {});
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

const LEFT_OUT = 'tool left out of the catalogue';
