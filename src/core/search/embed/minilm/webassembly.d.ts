/** The part of the WebAssembly JavaScript API used here: it is a global in Node, but its types are only in `lib.dom`. */
declare namespace WebAssembly {
  class Module {
    constructor(bytes: Uint8Array<ArrayBuffer>);
    readonly [Symbol.toStringTag]: 'WebAssembly.Module';
  }

  class Memory {
    constructor(descriptor: { initial: number; maximum: number; shared: true });
    readonly buffer: SharedArrayBuffer;
    /**
     * Adds `pages` of 64 KiB; throws a RangeError beyond the maximum. Older buffers of a shared memory stay valid but do not grow.
     */
    grow(pages: number): number;
  }

  class Instance<Exports = Record<string, unknown>> {
    constructor(module: Module, imports: { env: { memory: Memory } });
    readonly exports: Exports;
  }
}
