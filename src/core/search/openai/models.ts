import { createHash } from 'node:crypto';
import { eq } from 'drizzle-orm';
import type { Database } from '../../../infra/database.ts';
import { settings } from '../../schema.ts';
import { decodeVector, encodeVector, quantize } from '../quantize.ts';

/** What every model is asked first: its vector tells one model from another of the same name. */
export const PROBE_TEXT = 'Which model is this? Weather, invoices, calendars and source code.';
/** Two answers of one model differ by rounding; those of two models, or of two builds of one, by far more. */
const SAME_MODEL_COSINE = 0.995;

export interface KnownModel {
  /** Names the model in the database: vectors of two ids are never compared. */
  readonly id: string;
  readonly dimensions: number;
}

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
    for (let number = 1; ; number++) {
      const id = `openai:${this.#name}:${dimensions}${number === 1 ? '' : `:${number}`}`;
      const mine = Buffer.from(encodeVector(quantize(probe))).toString('base64');
      const key = `embedding_model:${id}`;
      await this.#db.insert(settings).values({ key, value: mine }).onConflictDoNothing();
      const stored = (await this.#read(key)) ?? mine;
      if (cosine(probe, stored) < SAME_MODEL_COSINE) continue;
      await this.#db
        .insert(settings)
        .values({ key: this.#addressKey, value: `${dimensions} ${id}` })
        .onConflictDoUpdate({ target: settings.key, set: { value: `${dimensions} ${id}` } });
      return { id, dimensions };
    }
  }

  /** The one that answered last at this address, for a start while the API is down. */
  async last(): Promise<KnownModel | undefined> {
    const match = /^(\d+) (.+)$/.exec((await this.#read(this.#addressKey)) ?? '');
    return match?.[2] === undefined ? undefined : { id: match[2], dimensions: Number(match[1]) };
  }

  async #read(key: string): Promise<string | undefined> {
    const [row] = await this.#db.select().from(settings).where(eq(settings.key, key));
    return row?.value;
  }
}

function cosine(unit: Float32Array, stored: string): number {
  const { values } = decodeVector(Buffer.from(stored, 'base64'));
  if (values.length !== unit.length) return 0;
  let dot = 0;
  let squares = 0;
  for (const [at, value] of values.entries()) {
    dot += value * (unit[at] ?? 0);
    squares += value * value;
  }
  return squares === 0 ? 0 : dot / Math.sqrt(squares);
}
