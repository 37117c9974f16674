import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { Sealing } from '../../src/platform/sealing.ts';

const MINUTE_MS = 60_000;
const OWNER = ['tenant', 'key', 'user'];
const newKey = (id: string) => ({ id, key: new Uint8Array(randomBytes(32)) });

function clockAt(startMs: number) {
  let nowMs = startMs;
  return { now: () => nowMs, advance: (ms: number) => void (nowMs += ms) };
}

describe('a sealed text', () => {
  const key = newKey('k1');
  const clock = clockAt(1_000_000);
  const sealing = new Sealing([key], clock);

  it.each(['', 'grüße 🎉', 'a:b', 'x'.repeat(100_000)])(
    'opens for the same purpose and owner, in any process with the key',
    text => {
      const sealed = sealing.seal('state', OWNER, text, MINUTE_MS);
      expect(sealed).toMatch(/^[\w.-]+$/);
      expect(new Sealing([key], clock).open('state', OWNER, sealed)).toBe(text);
    },
  );

  it('is another each time, and shows nothing of the text', () => {
    const [first, second] = [0, 1].map(() => sealing.seal('state', OWNER, 'open sesame', MINUTE_MS));
    expect(first).not.toBe(second);
    expect(Buffer.from(first?.slice(3) ?? '', 'base64url').toString('latin1')).not.toContain('sesame');
  });

  it.each([
    ['another purpose', 'session', OWNER],
    ['another owner', 'state', ['tenant', 'key', 'mallory']],
    ['an owner whose parts are split elsewhere', 'state', ['tenant', 'key,user']],
    ['an owner with one part less', 'state', ['tenant', 'key']],
  ])('does not open for %s', (_name, purpose, owner) => {
    const sealed = sealing.seal('state', OWNER, 'text', MINUTE_MS);
    expect(sealing.open(purpose, owner, sealed)).toBeUndefined();
  });

  it('expires', () => {
    const sealed = sealing.seal('state', OWNER, 'text', MINUTE_MS);
    clock.advance(MINUTE_MS - 1);
    expect(sealing.open('state', OWNER, sealed)).toBe('text');
    clock.advance(1);
    expect(sealing.open('state', OWNER, sealed)).toBeUndefined();
  });

  it('with any one character changed, added or taken away does not open', () => {
    const sealed = sealing.seal('state', OWNER, 'text', MINUTE_MS);
    const spoilt = Array.from(sealed, (character, at) => [
      sealed.slice(0, at) + (character === 'A' ? 'B' : 'A') + sealed.slice(at + 1),
      sealed.slice(0, at) + sealed.slice(at + 1),
      `${sealed.slice(0, at)}A${sealed.slice(at)}`,
    ]).flat();
    for (const text of new Set([...spoilt, `${sealed}-TAMPERED`, `${sealed}=`, `${sealed}\n`, ''])) {
      if (text !== sealed) expect(sealing.open('state', OWNER, text)).toBeUndefined();
    }
  });

  it.each(['k1.', 'k1.AAAA', 'k2.AAAA', '.AAAA', '../../x', '{}', 'k1'])('%j does not open', text => {
    expect(sealing.open('state', OWNER, text)).toBeUndefined();
  });
});

describe('rotation', () => {
  it('opens with the old key while it is configured, and seals with the new one', () => {
    const [old, fresh] = [newKey('k1'), newKey('k2')];
    const sealed = new Sealing([old]).seal('state', OWNER, 'text', MINUTE_MS);
    const rotated = new Sealing([fresh, old]);
    expect(rotated.open('state', OWNER, sealed)).toBe('text');
    expect(rotated.seal('state', OWNER, 'text', MINUTE_MS)).toMatch(/^k2\./);
    expect(new Sealing([fresh]).open('state', OWNER, sealed)).toBeUndefined();
    // The same id, another key: as after a reset of the vault.
    expect(new Sealing([newKey('k1')]).open('state', OWNER, sealed)).toBeUndefined();
  });
});
