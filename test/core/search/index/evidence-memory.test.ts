import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Evidence } from '../../../../src/core/search/index/evidence/evidence.ts';
import { EvidenceMemory } from '../../../../src/core/search/index/evidence/memory.ts';
import { quantize } from '../../../../src/core/search/index/vectors.ts';

const vector = quantize(new Float32Array(16).fill(0.25));

/** Evidence with so many parts, unlike any other. */
function evidence(name: string, parts = 1): Evidence {
  const terms = Array.from({ length: parts }, (_, at) => [name, `${name}-${at}`]);
  return Evidence.of(
    { whole: [name], parts: terms },
    terms.map(() => vector),
    16,
  );
}

function write(memory: EvidenceMemory, name: string, { words, vectors }: Evidence): Evidence {
  return memory.write(name, { words: words.byteLength, vectors: vectors.byteLength }, bytes => {
    bytes.words.set(new Uint8Array(words.buffer));
    bytes.vectors.set(new Uint8Array(vectors.buffer));
  });
}

const contentOf = (one: Evidence | undefined) => one && [[...one.words], [...one.vectors]];
const names = Array.from({ length: 400 }, (_, at) => `s${at}`);

describe('EvidenceMemory', () => {
  it('has what was written or nothing, within its bytes, whatever is written and used', () => {
    const step = fc.record({
      name: fc.constantFrom(...names.slice(0, 60)),
      parts: fc.integer({ min: 1, max: 40 }),
      kind: fc.constantFrom('write', 'write', 'use', 'delete'),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 300 }), steps => {
        const memory = new EvidenceMemory(40_000);
        const written = new Map<string, Evidence>();
        for (const { name, parts, kind } of steps) {
          if (kind === 'delete') memory.delete(name);
          if (kind === 'delete') written.delete(name);
          if (kind === 'use') memory.use(name);
          if (kind === 'write') {
            const one = evidence(name, parts);
            written.set(name, one);
            expect(contentOf(write(memory, name, one))).toEqual(contentOf(one));
          }
          expect(memory.bytes).toBeLessThanOrEqual(40_000);
        }
        for (const name of names.slice(0, 60)) {
          expect([undefined, contentOf(written.get(name))]).toContainEqual(contentOf(memory.copy(name)));
          expect(memory.use(name) !== undefined).toBe(memory.has(name));
        }
      }),
    );
  });

  it('keeps what searches ask for, and forgets what was written before', () => {
    const memory = new EvidenceMemory(20_000);
    for (const name of names) {
      write(memory, name, evidence(name));
      memory.use('s0');
    }
    expect(contentOf(memory.use('s0'))).toEqual(contentOf(evidence('s0')));
    expect(memory.has('s1')).toBe(false);
    expect(memory.has('s399')).toBe(true);
    expect(memory.hasRoom).toBe(false);
    expect(memory.bytes).toBeGreaterThan(10_000);
  });

  it('does not keep what is larger than a segment', () => {
    const memory = new EvidenceMemory(8_000);
    const large = evidence('large', 100);
    write(memory, 'large', evidence('large'));
    expect(contentOf(write(memory, 'large', large))).toEqual(contentOf(large));
    expect(memory.has('large')).toBe(false);
  });

  it('returns copies that stay as they are', () => {
    const memory = new EvidenceMemory(20_000);
    write(memory, 's0', evidence('s0'));
    const copy = memory.copy('s0');
    for (const name of names) write(memory, name, evidence(name));
    expect(contentOf(copy)).toEqual(contentOf(evidence('s0')));
    expect(memory.has('s0')).toBe(false);
  });
});
