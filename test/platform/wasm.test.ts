import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';

const START = 'from here on: ';

/** Runs a loop of the kernel for millions of steps in a process of its own. Returns which compilers made its code. */
function compilersOf(setUp: string): string[] {
  const script = `
    import { readFileSync, writeSync } from 'node:fs';
    import { compileOptimized, keepBaseline } from './src/platform/wasm.ts';
    const bytes = readFileSync('src/core/search/embed/minilm/kernel.wasm');
    writeSync(1, '${START}');
    ${setUp}
    const memory = new WebAssembly.Memory({ initial: 512, maximum: 512, shared: true });
    const { scan8 } = new WebAssembly.Instance(module, { env: { memory } }).exports;
    for (let round = 0; round < 2_000; round++) scan8(0, 1_024, 8_000_000, 1_000, 384, 1, 16_000_000);`;
  const flags = ['--trace-wasm-compilation-times', '--wasm-sync-tier-up', '--input-type=module'];
  const traced = execFileSync(process.execPath, [...flags, '-e', script], { encoding: 'utf8' });
  // Before that, Node compiles modules of its own.
  const own = traced.slice(traced.indexOf(START));
  return [...new Set(Array.from(own.matchAll(/using (\w+)/g), ([, compiler = '']) => compiler))].sort();
}

describe('the compilers of WebAssembly', () => {
  it('are both used by default', () => {
    expect(compilersOf('const module = new WebAssembly.Module(bytes);')).toEqual(['Liftoff', 'TurboFan']);
  });

  it('are the baseline one alone after keepBaseline', () => {
    expect(compilersOf('keepBaseline(); const module = new WebAssembly.Module(bytes);')).toEqual(['Liftoff']);
  });

  it('are the optimizing one alone with compileOptimized, even then', () => {
    expect(compilersOf('keepBaseline(); const module = compileOptimized(bytes);')).toEqual(['TurboFan']);
  });
});
