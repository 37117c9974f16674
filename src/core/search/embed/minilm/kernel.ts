import { readFileSync } from 'node:fs';
import { compileOptimized } from '../../../../platform/wasm.ts';

/**
 * The exports of `kernel.wasm`; `kernel.as.ts` documents them. All arguments except counts and scales are byte offsets into
 * the memory.
 */
export interface Kernel {
  pack(bytes: number, inner: number, columns: number, out: number): void;
  embed(ids: number, count: number, table: number, scales: number, out: number): void;
  quantize(a: number, rows: number, inner: number, out: number, scales: number): void;
  gemm(
    a: number,
    aScales: number,
    rows: number,
    inner: number,
    panels: number,
    columns: number,
    scales: number,
    bias: number,
    out: number,
  ): void;
  attention(qkv: number, count: number, scores: number, out: number): void;
  addAndNormalize(x: number, residual: number, rows: number, gamma: number, beta: number): void;
  gelu(x: number, count: number): void;
  pool(x: number, rows: number, out: number): void;
  scan8(
    query: number,
    rows: number,
    scales: number,
    count: number,
    dimensions: number,
    scale: number,
    out: number,
  ): void;
}

/** Bytes per page, the unit in which WebAssembly memory grows. */
export const PAGE_BYTES = 65_536;

let compiled: WebAssembly.Module | undefined;

/** The compiled kernel, one per thread; it can be posted to workers, which then share its machine code. */
export function kernelModule(): WebAssembly.Module {
  compiled ??= compileOptimized(readFileSync(new URL('kernel.wasm', import.meta.url)));
  return compiled;
}

/** Creates a memory for the kernel. It is always shared, even if only one thread uses it: the module imports nothing else. */
export function kernelMemory(initialBytes: number, maximumBytes = initialBytes): WebAssembly.Memory {
  return new WebAssembly.Memory({
    initial: Math.ceil(initialBytes / PAGE_BYTES),
    maximum: Math.ceil(maximumBytes / PAGE_BYTES),
    shared: true,
  });
}

/** Returns the kernel on `memory`. Instances on one memory may run concurrently if they write to different areas. */
export function instantiateKernel(module: WebAssembly.Module, memory: WebAssembly.Memory): Kernel {
  // The tests and `build-kernel.ts --check` verify that kernel.wasm has this interface.
  return new WebAssembly.Instance<Kernel>(module, { env: { memory } }).exports;
}

/** Allocates areas in a memory: each call returns the byte offset of a new area, aligned to 64 bytes. */
export class Bump {
  /** Offset 0 stays free, so that an unset offset never points at data. */
  #next = 64;

  take(bytes: number): number {
    const offset = this.#next;
    this.#next += Math.ceil(bytes / 64) * 64;
    return offset;
  }

  /** Bytes allocated so far. */
  get size(): number {
    return this.#next;
  }
}
