import minilm from './embed/minilm/tuning.json' with { type: 'json' };
import type { Answerability } from './answerability.ts';
import type { CalibrationPoint } from './calibration.ts';

/** What was learned about an embedder's cosines by `bench/tune.ts`: numbers that hold for no other one. */
export interface Tuning {
  /** How far cosines of texts that do not serve a request lie apart, see `lessChance`. */
  readonly spread: number;
  readonly calibration: readonly CalibrationPoint[];
  readonly answerability: Answerability;
}

const MINILM: Tuning = {
  spread: minilm.spread,
  calibration: minilm.calibration.map(([cosine = 0, probability = 0]) => [cosine, probability] as const),
  answerability: minilm.answerability,
};

/** Undefined where nothing was learned: for the n-gram stand-in, and for the models of APIs, whose vectors no tune run has seen. */
export function tuningOf(embedderId: string): Tuning | undefined {
  return embedderId === minilm.embedder ? MINILM : undefined;
}
