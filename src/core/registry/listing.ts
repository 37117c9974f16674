import type { Entry, RegistryMark } from '../catalogue/entry.ts';
import { idFor, type Read } from './entry.ts';

/** Problems that a report names. */
const MAX_PROBLEMS = 100;

/** A listing, as far as it has been read. Of a name that comes twice the last holds. */
export class Collected {
  readonly marks = new Map<string, RegistryMark>();
  readonly ended = new Set<string>();
  /** Ids whose entry is bad: what is known of them stays. */
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

  /** @param nameOf which registry's name the catalogue has under an id */
  constructor(nameOf: (id: string) => string | undefined) {
    this.#nameOf = nameOf;
  }

  get entries(): Entry[] {
    return [...this.#entries.values()];
  }

  add(read: Read): void {
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

/** Of times as RFC 3339 writes them. */
export const laterOf = (one: string | undefined, other: string | undefined): string | undefined => {
  if (one === undefined || other === undefined) return one ?? other;
  return Date.parse(one) > Date.parse(other) ? one : other;
};
