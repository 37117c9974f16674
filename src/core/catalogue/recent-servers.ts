import { LRUCache } from 'lru-cache';
import type { Database } from '../../platform/database/database.ts';
import type { Server } from './entry.ts';
import { pagesOfServers, readServers } from './store.ts';

/** Room for about 15,000 tools. */
const MAX_BYTES = 48 * 1024 * 1024;

/** Whole servers: recently used ones from memory, the others from the database. */
export class RecentServers {
  readonly #db: Database;
  readonly #recent: LRUCache<string, Server>;
  /** Incremented by every change, so that a read that started earlier keeps nothing outdated. */
  #changes = 0;

  constructor(db: Database, maxBytes = MAX_BYTES) {
    this.#db = db;
    this.#recent = new LRUCache<string, Server>({ maxSize: maxBytes, sizeCalculation: bytesOf });
  }

  get(id: string): Server | undefined {
    return this.#recent.get(id);
  }

  /** Returns a server that is in memory, without counting as a use. */
  peek(id: string): Server | undefined {
    return this.#recent.peek(id);
  }

  set(server: Server): void {
    this.#changes++;
    this.#recent.set(server.id, server);
  }

  delete(id: string): void {
    this.#changes++;
    this.#recent.delete(id);
  }

  /** Returns the stored servers with these ids. */
  async read(ids: readonly string[]): Promise<Map<string, Server>> {
    const found = new Map<string, Server>();
    const missing: string[] = [];
    for (const id of new Set(ids)) {
      const server = this.#recent.get(id);
      if (server) found.set(id, server);
      else missing.push(id);
    }
    if (missing.length === 0) return found;
    const before = this.#changes;
    for (const read of await readServers(this.#db, missing)) {
      // Written in the meantime: the row that was read may be the older one.
      const server = this.#recent.peek(read.id) ?? read;
      found.set(server.id, server);
      if (this.#changes === before) this.#recent.set(server.id, server);
    }
    return found;
  }

  /** Yields all active servers by id, page by page. Keeps them while there is room, without displacing others. */
  async *active(): AsyncGenerator<Server> {
    let before = this.#changes;
    for await (const page of pagesOfServers(this.#db)) {
      for (const read of page) {
        const held = this.#recent.peek(read.id);
        if (!held && this.#changes === before && this.#hasRoom) this.#recent.set(read.id, read);
        yield held ?? read;
      }
      before = this.#changes;
    }
  }

  get #hasRoom(): boolean {
    return this.#recent.calculatedSize < 0.9 * this.#recent.maxSize;
  }
}

const OBJECT_BYTES = 60;
const MEMBER_BYTES = 16;

/** Estimates the memory of a parsed JSON value. */
function bytesOf(value: unknown): number {
  if (typeof value === 'string') return MEMBER_BYTES + value.length;
  if (typeof value !== 'object' || value === null) return MEMBER_BYTES;
  let bytes = OBJECT_BYTES;
  for (const member of Object.values(value)) bytes += MEMBER_BYTES + bytesOf(member);
  return bytes;
}
