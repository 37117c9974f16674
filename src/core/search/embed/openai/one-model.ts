import type { Log } from '../../../../platform/telemetry/log.ts';
import type { EmbeddingAnswer } from './answer.ts';
import type { EmbeddingsClient, RequestOptions } from './client.ts';
import { EmbeddingFailure } from './failure.ts';
import type { EmbeddingLimits } from './limits.ts';
import {
  isNewName,
  isSame,
  PROBE_TEXT,
  similarity,
  type EmbeddingModels,
  type KnownModel,
} from './models.ts';

interface OneModelParts {
  readonly client: EmbeddingsClient;
  readonly models: EmbeddingModels;
  readonly limits: EmbeddingLimits;
  readonly log: Log;
}

/** Of a trial. */
const LANE = 'trial';

/**
 * Vectors of one model only. Behind a name and an address the model may change while every request succeeds; so requests carry
 * the probe as their last text: those whose vectors are kept always, others now and then, and whenever the API answers under
 * another model name. Where its vector is not the model's, nothing of that answer, nor of others under way, is used.
 */
export class OneModel {
  readonly #parts: OneModelParts;
  #model: KnownModel | undefined;
  /** How many trials in a row have found which other model. */
  #other = { id: '', trials: 0 };
  /** Grows when answers from before may be of another model than those from now on. */
  #epoch = 0;
  #verifiedAt = -Infinity;
  /** False for a server that takes one text a request: the probe then goes by itself. */
  #takesMore = true;

  constructor(parts: OneModelParts) {
    this.#parts = parts;
  }

  /** The model in use: it answers, or answered last. */
  get current(): KnownModel | undefined {
    return this.#model;
  }

  /** Vectors from before another epoch are not to be used. */
  get epoch(): number {
    return this.#epoch;
  }

  /** From now on. */
  use(model: KnownModel): void {
    const isOther = this.#model?.id !== model.id;
    if (isOther && this.#model)
      this.#parts.log.warn(
        { from: this.#model.id, to: model.id },
        'the embedding API has another model: all vectors are made anew with it',
      );
    if (isOther) this.#epoch++;
    this.#model = model;
    this.#parts.client.dimensions = model.dimensions;
  }

  /**
   * One vector of unit length a text (`sendable`, at least one).
   * @param isVerified whether the probe is to go along in any case
   * @throws EmbeddingFailure `other_model` where they are not the current model's, and as `EmbeddingsClient.embed`
   */
  async embed(
    texts: readonly string[],
    { isVerified = false, ...request }: RequestOptions & { readonly isVerified?: boolean },
  ): Promise<Float32Array[]> {
    const { client, limits } = this.#parts;
    const epoch = this.#epoch;
    const isDue = isVerified || performance.now() - this.#verifiedAt >= limits.verifyEveryMs;
    const answer: ProbedAnswer = isDue
      ? await this.#withProbe(texts, request)
      : await client.embed(texts, request);
    const probe = answer.probe ?? (this.#isNamedAnew(answer) ? await this.#probe(request) : undefined);
    // What was asked before a change of the model says nothing of the model after it.
    if (epoch !== this.#epoch)
      throw new EmbeddingFailure('held_back', { detail: 'another model was met meanwhile' });
    if (probe && this.#model) this.#verify(probe, answer.model, this.#model);
    return answer.vectors;
  }

  /** The model that answers now. @throws EmbeddingFailure */
  async #ask(): Promise<KnownModel> {
    const { client, models, limits } = this.#parts;
    const ask = () => client.embed([PROBE_TEXT], { lane: LANE, limitMs: limits.trialLimitMs });
    const answer = await ask().catch(async (error: EmbeddingFailure) => {
      if (error.kind !== 'input_refused' || client.encoding === undefined) throw error;
      client.encoding = undefined;
      return ask().catch((again: EmbeddingFailure) => {
        client.encoding = 'base64';
        throw again;
      });
    });
    const model = await models.identify(firstOf(answer));
    return answer.model === undefined ? model : models.named(model, answer.model);
  }

  /**
   * Asks which model answers, and uses it from now on: another one only when several trials in a row have found it, as one odd
   * answer is no reason to embed, and pay, everything anew.
   * @throws EmbeddingFailure
   */
  async trial(): Promise<void> {
    const found = await this.#ask();
    const { limits, models } = this.#parts;
    const before = this.#model;
    if (before && before.id !== found.id) {
      this.#epoch++;
      const { id } = found;
      this.#other = { id, trials: this.#other.id === id ? this.#other.trials + 1 : 1 };
      if (this.#other.trials < limits.otherModelTrials)
        throw new EmbeddingFailure('other_model', { detail: `${id} in place of ${before.id}` });
    }
    this.#other = { id: '', trials: 0 };
    this.#verifiedAt = performance.now();
    this.use(found);
    await models.setLast(found);
  }

  async #withProbe(texts: readonly string[], request: RequestOptions): Promise<ProbedAnswer> {
    const { client } = this.#parts;
    let refusal: unknown;
    if (this.#takesMore) {
      try {
        const answer = await client.embed([...texts, PROBE_TEXT], request);
        return { ...answer, vectors: answer.vectors.slice(0, -1), probe: answer.vectors.at(-1) };
      } catch (error) {
        const isOneTextRefused =
          error instanceof EmbeddingFailure && error.kind === 'input_refused' && texts.length === 1;
        if (!isOneTextRefused) throw error;
        refusal = error;
      }
    }
    const answer = await client.embed(texts, request);
    if (refusal !== undefined) this.#takesMore = false;
    // Afterwards: when the model changes in between, it is seen.
    return { ...answer, probe: await this.#probe(request) };
  }

  async #probe(request: RequestOptions): Promise<Float32Array> {
    return firstOf(await this.#parts.client.embed([PROBE_TEXT], request));
  }

  #isNamedAnew({ model }: EmbeddingAnswer): boolean {
    return this.#model !== undefined && isNewName(model, this.#model);
  }

  #verify(probe: Float32Array, name: string | undefined, model: KnownModel): void {
    if (!isSame(probe, model)) {
      this.#epoch++;
      const detail = `cosine ${similarity(probe, model).toFixed(3)} with ${model.id}`;
      throw new EmbeddingFailure('other_model', { detail });
    }
    this.#verifiedAt = performance.now();
    if (isNewName(name, model)) this.#takeName(name, model);
  }

  #takeName(name: string, model: KnownModel): void {
    const { models, log } = this.#parts;
    log.info(
      { embedder: model.id, name },
      'the embedding API calls its model by another name: it is the same',
    );
    this.#model = { ...model, names: [...model.names, name] };
    // No search waits or fails for it: what is not kept is found out again.
    models.named(model, name).catch((error: unknown) => log.warn({ err: error }, 'model name not kept'));
  }
}

interface ProbedAnswer extends EmbeddingAnswer {
  readonly probe?: Float32Array | undefined;
}

function firstOf({ vectors: [vector] }: EmbeddingAnswer): Float32Array {
  if (!vector) throw new EmbeddingFailure('invalid_answer');
  return vector;
}
