import { describe, expect, it } from 'vitest';
import { workProgress } from '../../src/cli/terminal.ts';

function display({ terminal }: { terminal: boolean }) {
  const shown: string[] = [];
  let now = 0;
  const keep = (text: string) => void shown.push(text);
  const io = { print: keep, complain: keep, status: terminal ? keep : undefined };
  const progress = workProgress(io, { nowMs: () => now });
  const show = (done: number, of: number, afterMs: number) => {
    now += afterMs;
    progress.show({ done, of });
  };
  return { shown, show, listed: progress.listed, end: progress.end };
}

describe('workProgress', () => {
  it('draws a bar with the rate and the time left on a terminal, and takes it away', () => {
    const { shown, show, end } = display({ terminal: true });
    show(0, 1200, 0);
    show(300, 1200, 6_000);
    show(1200, 1200, 18_000);
    end();
    expect(shown).toEqual([
      '[------------------------------] 0 of 1200 texts embedded',
      '[########----------------------] 300 of 1200 texts embedded, 50/s, 18 s left',
      '[##############################] 1200 of 1200 texts embedded',
      '',
    ]);
  });

  it('writes a line for each twentieth elsewhere', () => {
    const { shown, show, end } = display({ terminal: false });
    for (let done = 0; done <= 10_000; done += 10) show(done, 10_000, 100);
    end();
    expect(shown).toHaveLength(21);
    expect(shown[0]).toBe('0 of 10000 texts embedded');
    expect(shown[1]).toBe('500 of 10000 texts embedded, 100/s, 2 min left');
    expect(shown[20]).toBe('10000 of 10000 texts embedded');
  });

  it('counts what is read of a listing whose length nobody knows: in place on a terminal, a line a thousand elsewhere', () => {
    const terminal = display({ terminal: true });
    terminal.listed(100);
    terminal.listed(200);
    expect(terminal.shown).toEqual(['100 entries read', '200 entries read']);
    const file = display({ terminal: false });
    for (let entries = 100; entries <= 2_500; entries += 100) file.listed(entries);
    expect(file.shown).toEqual(['100 entries read', '1100 entries read', '2100 entries read']);
  });

  it('says what is counted', () => {
    const shown: string[] = [];
    const io = { print: () => {}, complain: () => {}, status: (text: string) => void shown.push(text) };
    workProgress(io, { nowMs: () => 0, what: 'rows written' }).show({ done: 1, of: 2 });
    expect(shown).toEqual(['[###############---------------] 1 of 2 rows written']);
  });

  it('takes the rate from what was embedded since it began to look', () => {
    const { shown, show } = display({ terminal: true });
    show(1_000, 2_000, 0);
    show(1_100, 2_000, 10_000);
    expect(shown[1]).toContain('10/s, 2 min left');
  });
});
