import { afterEach, expect, it, vi } from 'vitest';
import { listenToSignals, type StopSignals } from '../../src/cli/serve/signals.ts';

const LISTENERS = { SIGINT: process.listeners('SIGINT'), SIGTERM: process.listeners('SIGTERM') };

afterEach(() => {
  vi.restoreAllMocks();
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    for (const listener of process.listeners(signal))
      if (!LISTENERS[signal].includes(listener)) process.off(signal, listener);
});

it.each([
  ['Ctrl-C', 'SIGINT'],
  ['a service manager', 'SIGTERM'],
] as const)(
  'takes the signal that npm passes on for the one from %s; a later one ends it',
  (_from, signal) => {
    const ended = vi.spyOn(process, 'kill').mockReturnValue(true);
    let nowMs = 5_000;
    const { stop, kill }: StopSignals = listenToSignals(name => new Error(name), { now: () => nowMs });
    expect(stop.aborted).toBe(false);
    process.emit(signal, signal);
    expect(stop.reason).toEqual(new Error(signal));
    nowMs += 999;
    process.emit(signal, signal);
    expect([kill.aborted, ended.mock.calls]).toEqual([false, []]);
    nowMs += 1;
    process.emit(signal, signal);
    expect([kill.aborted, ended.mock.calls]).toEqual([true, [[process.pid, signal]]]);
    expect(process.listeners(signal)).toEqual(LISTENERS[signal]);
  },
);
