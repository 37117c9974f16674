import { setFlagsFromString } from 'node:v8';

/** Compiles a small module with numeric loops by V8's optimizing compiler at once, also after `keepBaseline`. */
export function compileOptimized(bytes: Uint8Array<ArrayBuffer>): WebAssembly.Module {
  setFlagsFromString('--no-liftoff');
  setFlagsFromString('--no-wasm-lazy-compilation');
  try {
    return new WebAssembly.Module(bytes);
  } finally {
    setFlagsFromString('--liftoff');
    setFlagsFromString('--wasm-lazy-compilation');
  }
}

/**
 * From now on, WebAssembly keeps the code of V8's baseline compiler, which is as fast for a database. Optimizing one large function of
 * Postgres alone takes 600 MB for a second (docs/decisions/0007).
 */
export function keepBaseline(): void {
  setFlagsFromString('--no-wasm-tier-up');
  setFlagsFromString('--no-wasm-dynamic-tiering');
}
