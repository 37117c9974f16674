import { isDeepStrictEqual } from 'node:util';
import { SwitchboardError } from '../../errors.ts';
import { nearest } from '../../platform/closest-names.ts';
import type { Database } from '../../platform/database/database.ts';
import { quoted, sanitise } from '../../platform/sanitize.ts';
import { SerialQueue } from '../../platform/queues.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { ChangeCursor, transactionOf } from './change-feed.ts';
import {
  endedBy,
  withdrawn,
  withoutOthers,
  type CatalogueChange,
  type InSameTransaction,
  type OnProgress,
  type PrepareChange,
  type PutOptions,
  type WholeCatalogue,
  type WriteOptions,
} from './changes.ts';
import {
  headOf,
  keepingLearned,
  type CalledServer,
  type Entry,
  type HeldServer,
  type LearnedAccess,
  type Server,
  type ServerHead,
} from './entry.ts';
import { RecentServers } from './recent-servers.ts';
import {
  ConcurrentEdit,
  readDescribed,
  readHeads,
  readServers,
  retireServers,
  writeChange,
  writeLearned,
  writeTools,
  writeUnreachable,
} from './store.ts';
import { sharing, toServers } from './to-server.ts';
import type { Definition } from './tools/definitions.ts';
import { compareListing } from './tools/store.ts';

export type { CatalogueChange, OnProgress, PrepareChange, WholeCatalogue } from './changes.ts';

type Located = Pick<ServerHead, 'id' | 'remoteUrl'>;

/** Replaces one server with another of the same id. */
interface Edit {
  readonly server: Server;
  /** True if a search could distinguish the two. */
  readonly isVisible: boolean;
  readonly write: (tx: Database) => Promise<void>;
}

interface RefreshOptions extends WriteOptions {
  /** Writes nothing if the listing is unchanged. */
  readonly unlessSame?: boolean;
  /** Limits new and changed tools; the rest stay unchanged. */
  readonly maxNews?: number;
}

/**
 * The catalogue, in the database. The heads of all servers are in memory, and whole servers while they are in use. A write is prepared in the search index first, then
 * committed in one transaction, then visible to calls and searches at once. A failure before the commit changes nothing;
 * after a crash, the next start reads all or none of the change from the database. Writes run one after another.
 */
export class Catalogue {
  readonly #db: Database;
  readonly #log: Log | undefined;
  readonly #byId = new Map<string, HeldServer>();
  readonly #recent: RecentServers;
  readonly #writes = new SerialQueue();
  /** Finds changes of other processes; undefined if there are none. */
  readonly #cursor: ChangeCursor | undefined;
  #prepare: PrepareChange = () => Promise.resolve(() => Promise.resolve());
  #onReinstated: (ids: readonly string[]) => void = () => {};
  /** True if the search index has every active server in its current state. */
  #isIndexed = false;

  private constructor(db: Database, log: Log | undefined, cursor: ChangeCursor | undefined) {
    this.#db = db;
    this.#log = log;
    this.#cursor = cursor;
    this.#recent = new RecentServers(db);
  }

  /** @param options.shared true if other processes write to the same database; see `catchUp` */
  static async load(db: Database, log?: Log, { shared = false } = {}): Promise<Catalogue> {
    const catalogue = new Catalogue(db, log, shared ? await ChangeCursor.fromNow(db) : undefined);
    for (const head of await readHeads(db)) catalogue.#byId.set(head.id, head);
    return catalogue;
  }

  /** Makes the search index take part in all further writes. Resolves once it has every active server. */
  attachIndex(prepare: PrepareChange): Promise<void> {
    this.#prepare = prepare;
    return this.reindex(prepare);
  }

  /** Prepares every active server again, between two writes. Resolves once that is in effect. */
  reindex(prepare: PrepareChange): Promise<void> {
    return this.#exclusively(async () => {
      const whole = { ...this.#whole(new Map(), new Set()), isAnew: true };
      const takeEffect = await prepare({ upserted: [], removed: [], whole });
      await takeEffect();
      this.#isIndexed = true;
    });
  }

  /** Calls the listener with servers that were inactive as unreachable, after `put` has reactivated them. */
  onReinstated(listener: (ids: readonly string[]) => void): void {
    this.#onReinstated = listener;
  }

  get(id: string): HeldServer | undefined {
    return this.#byId.get(id);
  }

  /** @throws SwitchboardError `server_not_found` (404) or `server_inactive` (410) */
  require(id: string): HeldServer {
    const server = this.#byId.get(id);
    if (server?.active) return server;
    if (!server) throw new SwitchboardError('server_not_found', notFound(id, this.active()));
    const why = server.unreachable
      ? ' because it was unreachable for 30 days. A successful health check reactivates it'
      : '';
    throw new SwitchboardError('server_inactive', `The server ${id} is no longer active${why}.`);
  }

  /** Returns the whole servers with these ids, active or not; unknown ids are missing. */
  async read(ids: readonly string[]): Promise<ReadonlyMap<string, Server>> {
    const found = await this.#recent.read(ids.filter(id => this.#byId.has(id)));
    // Access is shown before it is written.
    for (const [id, server] of found) found.set(id, keepingLearned(server, this.#byId.get(id)));
    return found;
  }

  /** Returns the descriptions and categories of servers. */
  readDescribed(ids: readonly string[]): ReturnType<typeof readDescribed> {
    return readDescribed(this.#db, ids);
  }

  /** Returns a whole active server. @throws SwitchboardError as `require` */
  async readActive(id: string): Promise<Server> {
    this.require(id);
    return this.#recent.get(id) ?? (await this.read([id])).get(id) ?? unknownIn(this.require(id));
  }

  /** Returns an active server for a call, without its tools if they cannot be read. @throws SwitchboardError as `require` */
  async readCalled(id: string): Promise<CalledServer> {
    const head = this.require(id);
    const read = () => this.read([id]).then(found => found.get(id));
    return this.#recent.get(id) ?? (await read().catch(() => undefined)) ?? head;
  }

  /** Yields all active servers as a whole, read page by page. */
  async *servers(): AsyncGenerator<Server> {
    for await (const server of this.#recent.active()) {
      const head = this.#byId.get(server.id);
      if (head?.active) yield keepingLearned(server, head);
    }
  }

  /** Returns an equal entry that shares memory with a whole server in memory. */
  sharing(entry: Entry): Entry {
    return sharing(entry, this.#recent.peek(entry.id));
  }

  /** Returns true if neither the server's entry nor the server itself says how it can be called. */
  hasUnknownAccess(id: string): boolean {
    const server = this.#byId.get(id);
    return server?.auth.kind === 'unknown' && server.learned === undefined;
  }

  /** Returns whether a server counts as one that requires something only because it has refused a call. */
  isClosedByRefusal(id: string): boolean {
    const server = this.#byId.get(id);
    const isStated = server?.auth.kind !== 'none' && server?.auth.kind !== 'unknown';
    return !isStated && server.learned !== undefined && server.learned.kind !== 'none';
  }

  /** Yields all servers, active or not. */
  all(): Iterable<HeldServer> {
    return this.#byId.values();
  }

  *active(): Generator<HeldServer> {
    for (const server of this.#byId.values()) if (server.active) yield server;
  }

  /** Yields the active servers and those that were deactivated because they were unreachable. */
  *listed(): Generator<HeldServer> {
    for (const server of this.#byId.values()) if (server.active || server.unreachable) yield server;
  }

  /** The number of texts that search compares with queries: active servers, their tools and examples. */
  get parts(): number {
    let count = 0;
    for (const head of this.active()) count += textCount(head);
    return count;
  }

  get activeCount(): number {
    let count = 0;
    for (const server of this.#byId.values()) if (server.active) count++;
    return count;
  }

  /**
   * Adds or updates entries, all or none. Of duplicate ids, the last entry wins. With `replace`, every other active server of
   * the same scope becomes inactive: `operator` replaces the whole catalogue, `shipped` only the shipped servers. Servers
   * that an operator's replacement deactivates then belong to the operator, so that an upgrade does not reactivate them. A
   * shipped entry never overwrites an operator's, and a registry's entry only its own.
   */
  put(entries: readonly Entry[], options: PutOptions): Promise<CatalogueChange> {
    return this.#exclusively(() => this.#put(entries, options));
  }

  async #put(entries: readonly Entry[], options: PutOptions): Promise<CatalogueChange> {
    const known = await this.read(entries.map(({ id }) => id));
    const wanted = await toServers(entries, options, known, this.#log);
    const left = withoutOthers(wanted, options, this.#byId);
    const gone = endedBy(wanted, options, new Set(left), this.listed());
    const moved = [...wanted.values()].flatMap(({ id, remoteUrl }) => {
      const old = this.#byId.get(id);
      return old && old.remoteUrl !== remoteUrl ? id : [];
    });
    const reinstated = [...wanted.keys()].filter(id => this.#byId.get(id)?.unreachable);
    const change = { upserted: [...wanted.values()], removed: gone.map(server => server.id), left };
    const prepared = {
      ...change,
      // Servers that are already indexed in this state are skipped.
      upserted: change.upserted.filter(one => !this.#isIndexed || known.get(one.id) !== one),
      ...(options.replace ? { whole: this.#whole(wanted, new Set(change.removed)) } : {}),
    };
    const write = (tx: Database) => writeChange(tx, { change, moved, reinstated }, options);
    return this.#commit(prepared, options, write, ({ upserted, removed }) => {
      for (const server of upserted) this.#show(server);
      const written = new Set([...removed, ...upserted.map(({ id }) => id)]);
      this.#onReinstated(reinstated.filter(id => written.has(id)));
      for (const head of gone) {
        if (!written.has(head.id)) continue;
        this.#byId.set(head.id, withdrawn(head, options.origin));
        this.#recent.delete(head.id);
      }
    });
  }

  /** Returns the active servers after a change. */
  #whole(wanted: ReadonlyMap<string, Server>, gone: ReadonlySet<string>): WholeCatalogue {
    const stays = ({ id }: ServerHead) => !wanted.has(id) && !gone.has(id);
    let parts = 0;
    for (const head of this.active()) if (stays(head)) parts += textCount(head);
    for (const server of wanted.values()) if (server.active) parts += textCount(headOf(server));
    const stored = () => this.servers();
    return {
      parts,
      async *servers() {
        for await (const server of stored()) if (stays(server)) yield server;
        for (const server of wanted.values()) if (server.active) yield server;
      },
    };
  }

  /**
   * Replaces the tools of a server with those that it lists itself, and keeps everything else. Does nothing if the server is
   * inactive or has moved, or if the listing is empty, for instance because it shows its tools only to signed-in users.
   * @param definitions tools that are the same for all callers
   * @param nowMs the time of the listing
   */
  async refreshTools(
    { id, remoteUrl }: Located,
    definitions: readonly Definition[],
    nowMs: number,
    { unlessSame = false, maxNews = Infinity, ...options }: RefreshOptions = {},
  ): Promise<void> {
    await this.#edit(id, options, async known => {
      if (!known?.active || known.remoteUrl !== remoteUrl || definitions.length === 0) return undefined;
      const listing = await compareListing(this.#db, this.#log, known, { definitions, nowMs, maxNews });
      if (unlessSame && listing.isSame) return undefined;
      const server: Server = { ...known, tools: listing.tools, toolsListedAt: nowMs };
      const write = async (tx: Database) => {
        await listing.write(tx);
        await writeTools(tx, server);
      };
      return { server, isVisible: listing.isVisible, write };
    });
  }

  /**
   * Deactivates a server: calls return 410. The row then belongs to the operator, so that an upgrade does not reactivate it.
   * @throws SwitchboardError `server_not_found`
   */
  async deactivate(id: string, inSameTransaction?: InSameTransaction): Promise<Server> {
    await this.#edit(id, { inSameTransaction }, known => {
      const write = (tx: Database) => retireServers(tx, [id], 'operator');
      return known && { server: withdrawn(known, 'operator'), isVisible: true, write };
    });
    return (await this.read([id])).get(id) ?? unknownIn(this.require(id));
  }

  /**
   * Deactivates an active server as unreachable, or reactivates one that is inactive for this reason. Does nothing if the
   * server is in neither state or has moved. Resolves to whether it was changed.
   */
  async setUnreachable(
    { id, remoteUrl }: Located,
    unreachable: boolean,
    inSameTransaction?: InSameTransaction,
  ): Promise<boolean> {
    try {
      return await this.#edit(id, { inSameTransaction }, known => {
        if (known?.remoteUrl !== remoteUrl) return undefined;
        if (unreachable ? !known.active : !known.unreachable) return undefined;
        const { unreachable: _before, ...bare } = known;
        const server: Server = unreachable
          ? { ...bare, active: false, unreachable }
          : { ...bare, active: true };
        return { server, isVisible: true, write: tx => writeUnreachable(tx, server, known) };
      });
    } catch (error) {
      if (error instanceof ConcurrentEdit) return false;
      throw error;
    }
  }

  /**
   * Stores what a server has shown of its access, which searches show at once. Does nothing if that is known already, or if
   * the server does not exist or has moved. It does not wait for other writes, because a long import must not delay a call.
   */
  async learnAccess(id: string, remoteUrl: string, learned: LearnedAccess): Promise<void> {
    const known = this.#byId.get(id);
    if (known?.remoteUrl !== remoteUrl || isDeepStrictEqual(known.learned, learned)) return;
    const shown = { ...known, learned };
    // Shown first, so that many refusals at a time are written once.
    this.#byId.set(id, shown);
    try {
      const transaction = await writeLearned(this.#db, shown, learned);
      if (transaction !== undefined) this.#cursor?.skip(transaction);
      const whole = this.#recent.peek(id);
      if (whole) this.#recent.set(keepingLearned(whole, this.#byId.get(id)));
    } catch (error) {
      if (this.#byId.get(id) === shown) this.#byId.set(id, known);
      throw error;
    }
  }

  /** Shows a server as it was written, with what may have been learned during the write. */
  #show(written: Server): void {
    const server = keepingLearned(written, this.#byId.get(written.id));
    this.#byId.set(server.id, headOf(server));
    this.#recent.set(server);
  }

  /** @param edit returns undefined if there is nothing to do; the result is false then */
  #edit(
    id: string,
    options: WriteOptions,
    edit: (known: Server | undefined) => Promise<Edit | undefined> | Edit | undefined,
  ): Promise<boolean> {
    return this.#exclusively(async () => {
      options.signal?.throwIfAborted();
      const edited = await edit((await this.read([id])).get(id));
      if (!edited) return false;
      const { server, isVisible, write } = edited;
      const change = server.active ? { upserted: [server], removed: [] } : { upserted: [], removed: [id] };
      const store = async (tx: Database) => {
        await write(tx);
        return change;
      };
      await this.#commit(isVisible ? change : undefined, options, store, () => this.#show(server));
      return true;
    });
  }

  /**
   * Prepares a change, stores it and then makes it visible.
   * @param prepared undefined if the search index is not affected
   */
  async #commit(
    prepared: CatalogueChange | undefined,
    {
      onProgress,
      inSameTransaction,
      signal,
    }: WriteOptions & { readonly onProgress?: OnProgress | undefined },
    store: (tx: Database) => Promise<CatalogueChange>,
    show: (stored: CatalogueChange) => void,
  ): Promise<CatalogueChange> {
    const failing = new AbortController();
    const ended = AbortSignal.any([failing.signal, ...(signal ? [signal] : [])]);
    const takeEffect = prepared && (await this.#prepare(prepared, onProgress, ended));
    let stored: CatalogueChange;
    try {
      stored = await this.#db.transaction(async tx => {
        if (this.#cursor) this.#cursor.skip(await transactionOf(tx));
        const written = await store(tx);
        await inSameTransaction?.(tx, written);
        signal?.throwIfAborted();
        return written;
      });
    } catch (error) {
      failing.abort(error);
      throw error;
    }
    show(stored);
    await takeEffect?.();
    return stored;
  }

  /** True if a further write would have to wait. */
  get isWriting(): boolean {
    return this.#writes.size > 0;
  }

  /** Resolves when no write is running. */
  settled(): Promise<void> {
    return this.#writes.settled();
  }

  /**
   * Loads what other processes have written since the last time. It runs between two writes, so that the last write to a
   * server wins in every process.
   */
  catchUp(): Promise<void> {
    return this.#writes.run(() => this.#catchUp());
  }

  #exclusively<T>(write: () => Promise<T>): Promise<T> {
    return this.#writes.run(async () => {
      // A failure to load others' changes must not block a local change.
      await this.#catchUp().catch(() => {});
      return write();
    });
  }

  /** @throws the error of preparing the change, which is then read again the next time */
  async #catchUp(): Promise<void> {
    const news = await this.#cursor?.read();
    if (!news) return;
    for (let at = 0; at < news.ids.length; at += SERVERS_AT_ONCE)
      await this.#take(await readServers(this.#db, news.ids.slice(at, at + SERVERS_AT_ONCE)));
    news.done();
  }

  /** Shows servers as another process has written them. */
  async #take(stored: readonly Server[]): Promise<void> {
    const servers = stored.filter(server => !isDeepStrictEqual(server, this.#recent.peek(server.id)));
    const searched = servers.filter(server => isVisible(server, this.#recent.peek(server.id)));
    const takeEffect = searched.length === 0 ? undefined : await this.#prepare(this.#changeOf(searched));
    for (const server of servers) {
      this.#byId.set(server.id, headOf(server));
      this.#recent.set(server);
    }
    await takeEffect?.();
  }

  /**
   * Returns the change to these servers. An import becomes visible at once, as in the process that made it; for a few
   * servers that would cost too much.
   */
  #changeOf(servers: readonly Server[]): CatalogueChange {
    const upserted = servers.filter(server => server.active);
    const removed = servers.flatMap(({ id, active }) => (!active && this.#byId.get(id)?.active ? id : []));
    const isReplacement = upserted.length > 0 && removed.length > 0;
    if (!isReplacement && servers.length < MANY_SERVERS) return { upserted, removed };
    const wanted = new Map(upserted.map(server => [server.id, server]));
    return { upserted, removed, whole: this.#whole(wanted, new Set(removed)) };
  }
}

/** The maximum number of another process's changes that become visible at once: all of them are in memory. */
const SERVERS_AT_ONCE = 2_000;
/** Changes of this many servers are treated as an import. */
const MANY_SERVERS = 20;

/** Returns true if the two differ in more than what was learned of access, which is not in the index. */
const isVisible = (
  { learned: _now, ...server }: Server,
  { learned: _before, ...known }: Partial<Server> = {},
) => !isDeepStrictEqual(server, known);

/** A head without a row: another process has deleted it by hand. */
function unknownIn({ id }: ServerHead): never {
  throw new SwitchboardError('server_not_found', `The server ${id} is no longer in the catalogue.`);
}

const MAX_MEANT = 3;
/** Limits the ids that a misspelt one is compared with. */
const MAX_SIMILAR = 300;

/** Returns the message for an unknown id. Callers often send a server's name or misspell the id. */
function notFound(id: string, servers: Iterable<ServerHead>): string {
  const called = id.trim().toLowerCase();
  const words = called.split(/[^\p{L}\p{N}]+/u).filter(word => word.length > 2);
  const named: ServerHead[] = [];
  const worded: ServerHead[] = [];
  const similar = new Map<string, ServerHead>();
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

const saysWord = ({ id, name }: ServerHead, word: string) =>
  id.includes(word) || name.toLowerCase().includes(word);

/** A cheap comparison for every server of a large catalogue: a shared word, or the same first letter and a similar length. */
const isSimilar = (id: string, called: string, words: readonly string[]): boolean =>
  words.some(word => id.includes(word)) || (id[0] === called[0] && Math.abs(id.length - called.length) <= 2);

/** The number of texts by which search finds a server. */
const textCount = ({ toolCount, exampleCount }: HeldServer): number => 1 + toolCount + exampleCount;
