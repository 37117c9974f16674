import type { Entry, RegistryMark } from '../catalogue/entry.ts';
import { idFor, type ReadItem } from './entry.ts';

/** Limits the problems that a report names. */
const MAX_PROBLEMS = 100;

/** Entries of a registry's listing, collected page by page. A name that comes twice counts with its last entry. */
export class Listing {
  readonly marks = new Map<string, RegistryMark>();
  readonly ended = new Set<string>();
  /** Ids of bad entries: the catalogued servers stay as they are. */
  readonly kept = new Set<string>();
  readonly counts = {
    received: 0,
    skipped: { deleted: 0, no_remote: 0, needs_configuration: 0 },
    problems: [] as { name?: string; reason: string }[],
    bad: 0,
  };
  highWater: string | undefined;
  readonly #entries = new Map<string, Entry>();
  readonly #nameOf: (id: string) => string | undefined;

  /** @param nameOf returns the registry name that the catalogue has under an id */
  constructor(nameOf: (id: string) => string | undefined) {
    this.#nameOf = nameOf;
  }

  get entries(): Entry[] {
    return [...this.#entries.values()];
  }

  add(read: ReadItem): void {
    this.counts.received++;
    if ('updatedAt' in read) this.highWater = laterOf(this.highWater, read.updatedAt);
    if (read.kind === 'bad') this.#addProblem(read);
    if (read.kind === 'ended') {
      this.counts.skipped[read.why]++;
      const id = this.#idOf(read.name);
      this.#forget(id);
      this.ended.add(id);
    }
    if (read.kind === 'server') {
      const id = this.#idOf(read.name);
      this.#forget(id);
      this.#entries.set(id, { ...read.entry.entry, id });
      this.marks.set(id, read.entry.mark);
    }
  }

  #addProblem({ name, reason }: { name?: string; reason: string }): void {
    this.counts.bad++;
    if (name !== undefined) this.kept.add(this.#idOf(name));
    if (this.counts.problems.length < MAX_PROBLEMS)
      this.counts.problems.push({ ...(name === undefined ? {} : { name }), reason });
  }

  #forget(id: string): void {
    this.#entries.delete(id);
    this.marks.delete(id);
    this.ended.delete(id);
  }

  #idOf(name: string): string {
    return idFor(name, id => this.marks.get(id)?.name ?? this.#nameOf(id));
  }
}

/** Returns the later of two RFC 3339 times. */
export const laterOf = (one: string | undefined, other: string | undefined): string | undefined => {
  if (one === undefined || other === undefined) return one ?? other;
  return Date.parse(one) > Date.parse(other) ? one : other;
};
