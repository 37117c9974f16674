import { Bump, instantiateKernel, type Kernel } from './kernel.ts';
import { MAX_TOKENS } from './tokenizer.ts';
import type { Tensors } from './weights.ts';

/** Width of a hidden state and of the vectors. */
export const DIMENSIONS = 384;
const FEED_FORWARD = 1536;
const LAYERS = 6;
const VOCABULARY = 30_522;
const POSITIONS = 512;
const QKV = 3 * DIMENSIONS;
const FLOAT_BYTES = 4;

/** The maximum number of tokens per forward pass, over all its texts: a multiple of 4, and any single text fits. */
const MAX_ROWS = MAX_TOKENS;
/** The maximum number of texts per forward pass. */
export const MAX_TEXTS = 8;
/** The maximum number of vectors per forward pass. */
export const MAX_VECTORS = 16;

/** Byte offsets of an affine map: panels in the layout of `pack`, one scale per column, and the bias. */
interface Dense {
  readonly panels: number;
  readonly scales: number;
  readonly bias: number;
}

interface Norm {
  readonly gamma: number;
  readonly beta: number;
}

interface Layer {
  readonly qkv: Dense;
  readonly context: Dense;
  readonly contextNorm: Norm;
  readonly rise: Dense;
  readonly fall: Dense;
  readonly outputNorm: Norm;
}

/** The layout of the weights in memory: plain data, so that it can be posted to a worker. */
export interface ModelLayout {
  /** The word table stays 8-bit, with one scale per word: 12 MB instead of 47. */
  readonly words: { readonly table: number; readonly scales: number };
  /** Position plus token type 0, f32 [MAX_TOKENS, DIMENSIONS]. */
  readonly positions: number;
  readonly embeddingNorm: Norm;
  readonly layers: readonly Layer[];
}

/** Bytes of scratch for one forward pass. */
export const SCRATCH_BYTES = planScratch(0).bytes;

/** Bytes that `packModel` fills, including the staging area. */
export const MODEL_BYTES = planModel().bytes;

function planModel() {
  const bump = new Bump();
  const floats = (count: number) => bump.take(count * FLOAT_BYTES);
  const dense = (inner: number, columns: number): Dense => ({
    panels: bump.take(inner * columns),
    scales: floats(columns),
    bias: floats(columns),
  });
  const norm = (): Norm => ({ gamma: floats(DIMENSIONS), beta: floats(DIMENSIONS) });
  const layout: ModelLayout = {
    words: { table: bump.take(VOCABULARY * DIMENSIONS), scales: floats(VOCABULARY) },
    positions: floats(MAX_TOKENS * DIMENSIONS),
    embeddingNorm: norm(),
    layers: Array.from({ length: LAYERS }, () => ({
      qkv: dense(DIMENSIONS, QKV),
      context: dense(DIMENSIONS, DIMENSIONS),
      contextNorm: norm(),
      rise: dense(DIMENSIONS, FEED_FORWARD),
      fall: dense(FEED_FORWARD, DIMENSIONS),
      outputNorm: norm(),
    })),
  };
  // The largest matrix, before it is packed into panels.
  const staging = bump.take(DIMENSIONS * FEED_FORWARD);
  return { layout, staging, bytes: bump.size };
}

/**
 * Writes the model into `memory`, from offset 0 to MODEL_BYTES: matrices in 8 bits, the rest as floats.
 * @throws WeightsUnavailable if the tensors belong to a different model
 */
export function packModel(tensors: Tensors, memory: WebAssembly.Memory, kernel: Kernel): ModelLayout {
  const { layout, staging } = planModel();
  const bytes = new Uint8Array(memory.buffer);
  const floats = (name: string, length: number, out: number) =>
    bytes.set(tensors.bytes(name, 'F32', [length]), out);
  const dense = (name: string, inner: number, columns: number, out: Dense) => {
    bytes.set(tensors.bytes(`${name}.weight`, 'I8', [inner, columns]), staging);
    kernel.pack(staging, inner, columns, out.panels);
    floats(`${name}.scale`, columns, out.scales);
    floats(`${name}.bias`, columns, out.bias);
  };
  const norm = (name: string, out: Norm) => {
    floats(`${name}.weight`, DIMENSIONS, out.gamma);
    floats(`${name}.bias`, DIMENSIONS, out.beta);
  };

  bytes.set(tensors.bytes('words.weight', 'I8', [VOCABULARY, DIMENSIONS]), layout.words.table);
  floats('words.scale', VOCABULARY, layout.words.scales);
  packPositions(tensors, new Float32Array(memory.buffer, layout.positions, MAX_TOKENS * DIMENSIONS));
  norm('norm', layout.embeddingNorm);
  for (const [index, layer] of layout.layers.entries()) {
    const name = `layers.${index}`;
    dense(`${name}.qkv`, DIMENSIONS, QKV, layer.qkv);
    dense(`${name}.context`, DIMENSIONS, DIMENSIONS, layer.context);
    norm(`${name}.context_norm`, layer.contextNorm);
    dense(`${name}.rise`, DIMENSIONS, FEED_FORWARD, layer.rise);
    dense(`${name}.fall`, FEED_FORWARD, DIMENSIONS, layer.fall);
    norm(`${name}.output_norm`, layer.outputNorm);
  }
  return layout;
}

function packPositions(tensors: Tensors, out: Float32Array): void {
  const floatsOf = (name: string, rows: number) =>
    // A copy, because the file need not be aligned.
    new Float32Array(Uint8Array.from(tensors.bytes(name, 'F32', [rows, DIMENSIONS])).buffer);
  const positions = floatsOf('positions.weight', POSITIONS);
  const types = floatsOf('types.weight', 2);
  for (let i = 0; i < out.length; i++) out[i] = (positions[i] ?? 0) + (types[i % DIMENSIONS] ?? 0);
}

function planScratch(base: number) {
  const bump = new Bump();
  const take = (floats: number) => base + bump.take(floats * FLOAT_BYTES);
  const qkv = take(MAX_ROWS * QKV);
  const context = take(MAX_ROWS * (FEED_FORWARD - QKV));
  return {
    qkv,
    context,
    /** The feed-forward activations reuse the space of qkv and context, which are no longer needed. */
    wide: qkv,
    hidden: take(MAX_ROWS * DIMENSIONS),
    delta: take(MAX_ROWS * DIMENSIONS),
    scores: take(MAX_ROWS),
    ids: take(MAX_ROWS),
    out: take(MAX_VECTORS * DIMENSIONS),
    /** The left side of the current multiplication, in 16 bits, and its scales. */
    quantized: take((MAX_ROWS * FEED_FORWARD) / 2),
    rowScales: take(MAX_ROWS),
    bytes: bump.size,
  };
}

/** A batch's token ids, all texts in a row: 1 to MAX_TEXTS texts, at most MAX_ROWS ids. */
export interface TokenBatch {
  readonly ids: Int32Array;
  /** The number of ids per text. */
  readonly lengths: readonly number[];
  /** The rows (first, number) whose mean is a vector: all of a text, or some in its context. At most MAX_VECTORS. */
  readonly pooled: readonly (readonly [row: number, rows: number])[];
}

/**
 * Creates the model's forward pass on one thread.
 * @param memory holds the packed model and, at `scratch`, SCRATCH_BYTES that nothing else writes to
 * @returns a function from a batch to its unit vectors, [pooled, DIMENSIONS] in a new array
 */
export function createForwardPass(
  module: WebAssembly.Module,
  memory: WebAssembly.Memory,
  layout: ModelLayout,
  scratch: number,
): (batch: TokenBatch) => Float32Array<ArrayBuffer> {
  const kernel = instantiateKernel(module, memory);
  const at = planScratch(scratch);

  function affine(input: number, rows: number, inner: number, map: Dense, columns: number, out: number) {
    const { quantized, rowScales } = at;
    kernel.quantize(input, rows, inner, quantized, rowScales);
    kernel.gemm(quantized, rowScales, rows, inner, map.panels, columns, map.scales, map.bias, out);
  }

  function encodeLayer(layer: Layer, lengths: readonly number[], rows: number): void {
    // gemm processes four rows at a time; the last ones may be stale, which is harmless because rows are independent.
    const padded = Math.ceil(rows / 4) * 4;
    affine(at.hidden, padded, DIMENSIONS, layer.qkv, QKV, at.qkv);
    eachText(lengths, (row, length) => {
      const context = at.context + row * DIMENSIONS * FLOAT_BYTES;
      kernel.attention(at.qkv + row * QKV * FLOAT_BYTES, length, at.scores, context);
    });
    affine(at.context, padded, DIMENSIONS, layer.context, DIMENSIONS, at.delta);
    kernel.addAndNormalize(at.hidden, at.delta, rows, layer.contextNorm.gamma, layer.contextNorm.beta);
    affine(at.hidden, padded, DIMENSIONS, layer.rise, FEED_FORWARD, at.wide);
    kernel.gelu(at.wide, rows * FEED_FORWARD);
    affine(at.wide, padded, FEED_FORWARD, layer.fall, DIMENSIONS, at.delta);
    kernel.addAndNormalize(at.hidden, at.delta, rows, layer.outputNorm.gamma, layer.outputNorm.beta);
  }

  return ({ ids, lengths, pooled }) => {
    new Int32Array(memory.buffer, at.ids, MAX_ROWS).set(ids);
    kernel.embed(at.ids, ids.length, layout.words.table, layout.words.scales, at.hidden);
    const { gamma, beta } = layout.embeddingNorm;
    eachText(lengths, (row, length) => {
      kernel.addAndNormalize(
        at.hidden + row * DIMENSIONS * FLOAT_BYTES,
        layout.positions,
        length,
        gamma,
        beta,
      );
    });
    for (const layer of layout.layers) encodeLayer(layer, lengths, ids.length);
    for (const [vector, [row, rows]] of pooled.entries()) {
      kernel.pool(
        at.hidden + row * DIMENSIONS * FLOAT_BYTES,
        rows,
        at.out + vector * DIMENSIONS * FLOAT_BYTES,
      );
    }
    // Copied out of the shared memory, which the next batch overwrites.
    return Float32Array.from(new Float32Array(memory.buffer, at.out, pooled.length * DIMENSIONS));
  };
}

function eachText(lengths: readonly number[], visit: (row: number, length: number) => void): void {
  let row = 0;
  for (const length of lengths) {
    visit(row, length);
    row += length;
  }
}
