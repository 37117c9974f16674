import minilm from './minilm/tuning.json' with { type: 'json' };
import type { Answerability } from './answerability.ts';
import type { CalibrationPoint } from './calibration.ts';

/** What was learned about an embedder's cosines by `bench/tune.ts`: numbers that hold for no other one. */
export interface Tuning {
  readonly calibration: readonly CalibrationPoint[];
  readonly answerability: Answerability;
}

/** Undefined where nothing was learned: for the n-gram stand-in, and for the models of APIs, whose vectors no tune run has seen. */
export function tuningOf(embedderId: string): Tuning | undefined {
  if (embedderId !== minilm.embedder) return undefined;
  const calibration = minilm.calibration.map(([cosine = 0, probability = 0]): CalibrationPoint => [
    cosine,
    probability,
  ]);
  return { calibration, answerability: minilm.answerability };
}
