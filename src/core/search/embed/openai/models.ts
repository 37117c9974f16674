import { createHash } from 'node:crypto';
import { eq } from 'drizzle-orm';
import type { Database } from '../../../../platform/database/database.ts';
import { settings } from '../../../../platform/database/schema.ts';
import { decodeVector, encodeVector, quantize, type QuantizedVector } from '../../index/quantize.ts';

/** What every model is asked first: its vector tells one model from another of the same name. */
export const PROBE_TEXT = 'Which model is this? Weather, invoices, calendars and source code.';
/**
 * Answers of one model differ: by our own rounding, by the order in which a batch is summed up, by activations that are quantised
 * with the batch. Assumed is that this stays within a few thousandths; another model, or another build of one, differs by more.
 */
const SAME_MODEL_COSINE = 0.99;
/** A server that calls its model by more names says nothing by them. */
const MAX_NAMES = 8;

export interface KnownModel {
  /** Names the model in the database: vectors of two ids are never compared. */
  readonly id: string;
  readonly dimensions: number;
  /** Its vector of `PROBE_TEXT` when it was first met. */
  readonly probe: QuantizedVector;
  /** What the API has called it. */
  readonly names: readonly string[];
}

/** @param probe of unit length, for `PROBE_TEXT` */
export const similarity = (probe: Float32Array, model: KnownModel): number => cosine(probe, model.probe);
export const isSame = (probe: Float32Array, model: KnownModel): boolean =>
  similarity(probe, model) >= SAME_MODEL_COSINE;

/** Whether an answer under that name has to be looked at: no name says nothing. */
export const isNewName = (name: string | undefined, { names }: KnownModel): name is string =>
  name !== undefined && names.length < MAX_NAMES && !names.includes(name);

/**
 * The models that have ever answered here. A name alone does not make vectors comparable: behind one name and one address
 * there may be another model tomorrow (a deployment's name, a local server's file), and behind two addresses the same.
 * So a model is known by its vector of one text.
 */
export class EmbeddingModels {
  readonly #db: Database;
  readonly #name: string;
  readonly #addressKey: string;

  constructor(db: Database, { baseUrl, model }: { readonly baseUrl: string; readonly model: string }) {
    this.#db = db;
    this.#name = model;
    const address = createHash('sha256').update(`${baseUrl}\n${model}`).digest('hex');
    this.#addressKey = `embedding_model_at:${address.slice(0, 32)}`;
  }

  /** The model that gave this vector of unit length for `PROBE_TEXT`: a known one, or a new one. */
  async identify(probe: Float32Array): Promise<KnownModel> {
    const dimensions = probe.length;
    const mine = Buffer.from(encodeVector(quantize(probe))).toString('base64');
    for (let number = 1; ; number++) {
      const id = `openai:${this.#name}:${dimensions}${number === 1 ? '' : `:${number}`}`;
      await this.#db
        .insert(settings)
        .values({ key: probeKey(id), value: mine })
        .onConflictDoNothing();
      const model = await this.#known(id, dimensions);
      if (model && isSame(probe, model)) return model;
    }
  }

  /** Keeps it as the one that answered last at this address. */
  async setLast({ id, dimensions }: KnownModel): Promise<void> {
    await this.#write(this.#addressKey, `${dimensions} ${id}`);
  }

  /** The one that answered last at this address, for a start while the API is down. */
  async last(): Promise<KnownModel | undefined> {
    const match = /^(\d+) (.+)$/.exec((await this.#read(this.#addressKey)) ?? '');
    return match?.[2] === undefined ? undefined : this.#known(match[2], Number(match[1]));
  }

  /** Keeps what the API calls the model, beside its vector. */
  async named(model: KnownModel, name: string): Promise<KnownModel> {
    if (!isNewName(name, model)) return model;
    const names = [...model.names, name];
    await this.#write(namesKey(model.id), JSON.stringify(names));
    return { ...model, names };
  }

  async #known(id: string, dimensions: number): Promise<KnownModel | undefined> {
    const probe = await this.#read(probeKey(id));
    if (probe === undefined) return undefined;
    const names = JSON.parse((await this.#read(namesKey(id))) ?? '[]') as string[];
    return { id, dimensions, probe: decodeVector(Buffer.from(probe, 'base64')), names };
  }

  async #read(key: string): Promise<string | undefined> {
    const [row] = await this.#db.select().from(settings).where(eq(settings.key, key));
    return row?.value;
  }

  async #write(key: string, value: string): Promise<void> {
    await this.#db
      .insert(settings)
      .values({ key, value })
      .onConflictDoUpdate({ target: settings.key, set: { value } });
  }
}

const probeKey = (id: string): string => `embedding_model:${id}`;
const namesKey = (id: string): string => `embedding_model_names:${id}`;

function cosine(unit: Float32Array, { values }: QuantizedVector): number {
  if (values.length !== unit.length) return 0;
  let dot = 0;
  let squares = 0;
  for (const [at, value] of values.entries()) {
    dot += value * (unit[at] ?? 0);
    squares += value * value;
  }
  return squares === 0 ? 0 : dot / Math.sqrt(squares);
}
