import type { UseSignals } from '../catalogue/use-tally.ts';

/**
 * By how much use changes relevance at most: of two servers, the more relevant one stays above unless the other's relevance
 * is within this share of its own. So use parts near-ties, and lifts nothing that is irrelevant over what is clearly relevant.
 */
export const MAX_USE_EFFECT = 0.05;

/**
 * What each signal contributes to a server's standing; they add up to 1. Whether a server works matters most. Novelty is
 * worth less than popularity, so that what many use stays ahead of what nobody has tried, but by half of what it would be:
 * where relevance differs by that little, new servers are seen. Whoever has called a server with success never finds it below an
 * untried equal. Verdicts are weak: they cost nothing to give.
 */
const WEIGHTS: Readonly<Record<keyof UseSignals, number>> = {
  success: 0.45,
  popularity: 0.3,
  novelty: 0.2,
  approval: 0.05,
};

/**
 * The score of a server of this relevance (0 to 1) with what is known of its use: relevance times a factor between
 * 1 / (1 + MAX_USE_EFFECT) and 1. Of equal relevance, it orders by standing; of equal standing, by relevance.
 */
export function withUse(relevance: number, signals: UseSignals): number {
  return (relevance * (1 + MAX_USE_EFFECT * standingOf(signals))) / (1 + MAX_USE_EFFECT);
}

/** 0 to 1. What is not a number, or out of its range, counts as the range's end. */
function standingOf({ success, popularity, novelty, approval }: UseSignals): number {
  return (
    WEIGHTS.success * clamp(success) +
    WEIGHTS.popularity * clamp(popularity) +
    WEIGHTS.novelty * clamp(novelty) +
    WEIGHTS.approval * clamp((1 + approval) / 2)
  );
}

/** NaN counts as 0. */
const clamp = (value: number): number => Math.min(1, Math.max(0, value || 0));
