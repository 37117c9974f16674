import { monotonicMs, systemClock, type Clock } from '../../platform/time.ts';

export interface StopSignals {
  /** Aborts at the first SIGTERM or SIGINT, with the reason. Running calls may finish. */
  readonly stop: AbortSignal;
  /** Aborts at the second, at least a second later, which ends this process at once. */
  readonly kill: AbortSignal;
}

/**
 * A program that `npm start` has started gets a signal twice if its whole process group does, from a terminal (Ctrl-C) or from
 * systemd: npm passes its own on, milliseconds later. A person who wants to end the program at once can press Ctrl-C again.
 */
const SAME_SIGNAL_MS = 1_000;

/** Listens to SIGTERM and SIGINT from now on. */
export function listenToSignals(
  reasonOf: (signal: NodeJS.Signals) => Error,
  clock: Clock = systemClock,
): StopSignals {
  const [stopping, killing] = [new AbortController(), new AbortController()];
  let stoppedAtMs = 0;
  const receive = (signal: NodeJS.Signals) => {
    const nowMs = monotonicMs(clock);
    if (!stopping.signal.aborted) {
      stoppedAtMs = nowMs;
      stopping.abort(reasonOf(signal));
    } else if (nowMs - stoppedAtMs >= SAME_SIGNAL_MS) {
      // Without these listeners a signal ends the process.
      process.off('SIGTERM', receive).off('SIGINT', receive);
      killing.abort();
      process.kill(process.pid, signal);
    }
  };
  process.on('SIGTERM', receive).on('SIGINT', receive);
  return { stop: stopping.signal, kill: killing.signal };
}
