import { Bump, instantiateKernel, type Kernel } from './kernel.ts';
import { MAX_TOKENS } from './tokenizer.ts';
import type { ModelFiles } from './weights.ts';

/** Width of a hidden state and of the vectors. */
export const DIMENSIONS = 384;
const FEED_FORWARD = 1536;
const LAYERS = 6;
const VOCABULARY = 30_522;
const POSITIONS = 512;
const QKV = 3 * DIMENSIONS;
const FLOAT_BYTES = 4;
const PANEL_HEADER_BYTES = 16;

/** The maximum number of tokens per forward pass, over all its texts: a multiple of 4, and any single text fits. */
const MAX_ROWS = MAX_TOKENS;
/** The maximum number of texts per forward pass. */
export const MAX_TEXTS = 8;

/** Byte offsets of an affine map: panels in the layout of `pack`, and the bias. */
interface Dense {
  readonly panels: number;
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
  /** The word table stays 8-bit: 12 MB instead of 47. */
  readonly words: { readonly table: number; readonly scale: number; readonly min: number };
  /** Position plus token type 0, f32 [MAX_TOKENS, DIMENSIONS]. */
  readonly positions: number;
  readonly embeddingNorm: Norm;
  readonly layers: readonly Layer[];
}

/** Bytes of scratch for one forward pass. */
export const SCRATCH_BYTES = planScratch(0).bytes;

/** Bytes that `packModel` fills, including the staging area. */
export const MODEL_BYTES = planModel().bytes;

/** Returns the bytes of a matrix in the layout of `pack`: panels of eight columns, each with a header. */
function panelBytes(inner: number, columns: number): number {
  return (columns / 8) * (PANEL_HEADER_BYTES + inner * 8);
}

function planModel() {
  const bump = new Bump();
  const floats = (count: number) => bump.take(count * FLOAT_BYTES);
  const dense = (inner: number, columns: number): Dense => ({
    panels: bump.take(panelBytes(inner, columns)),
    bias: floats(columns),
  });
  const norm = (): Norm => ({ gamma: floats(DIMENSIONS), beta: floats(DIMENSIONS) });
  const table = bump.take(VOCABULARY * DIMENSIONS);
  const positions = floats(MAX_TOKENS * DIMENSIONS);
  const embeddingNorm = norm();
  const layers = Array.from({ length: LAYERS }, () => ({
    qkv: dense(DIMENSIONS, QKV),
    context: dense(DIMENSIONS, DIMENSIONS),
    contextNorm: norm(),
    rise: dense(DIMENSIONS, FEED_FORWARD),
    fall: dense(FEED_FORWARD, DIMENSIONS),
    outputNorm: norm(),
  }));
  // The largest matrix, before it is packed into panels.
  const staging = bump.take(DIMENSIONS * FEED_FORWARD);
  return { table, positions, embeddingNorm, layers, staging, bytes: bump.size };
}

/**
 * Writes the model into `memory`, from offset 0 to MODEL_BYTES: matrices in 8 bits, the rest as floats.
 * @throws WeightsUnavailable if the files belong to a different model
 */
export function packModel(files: ModelFiles, memory: WebAssembly.Memory, kernel: Kernel): ModelLayout {
  const plan = planModel();
  const bytes = new Uint8Array(memory.buffer);

  const matrix = (name: string, inner: number, columns: number, out: number) => {
    const tensor = files.tensor(`${name}/W`, [inner, columns]);
    bytes.set(tensor.bytes, plan.staging);
    kernel.pack(plan.staging, inner, columns, tensor.scale, tensor.min, out);
  };
  const vector = (name: string, length: number, out: number) => {
    const tensor = files.tensor(name, [length]);
    bytes.set(tensor.bytes, plan.staging);
    kernel.dequantize(plan.staging, length, tensor.scale, tensor.min, out);
  };
  const dense = (name: string, inner: number, columns: number, out: Dense) => {
    matrix(name, inner, columns, out.panels);
    vector(`${name}/b`, columns, out.bias);
  };
  const norm = (name: string, out: Norm) => {
    vector(`${name}/LayerNorm/gamma`, DIMENSIONS, out.gamma);
    vector(`${name}/LayerNorm/beta`, DIMENSIONS, out.beta);
  };

  const words = files.tensor('embeddings/word', [VOCABULARY, DIMENSIONS]);
  bytes.set(words.bytes, plan.table);
  packPositions(files, new Float32Array(memory.buffer, plan.positions, MAX_TOKENS * DIMENSIONS));
  norm('embeddings', plan.embeddingNorm);

  for (const [index, layer] of plan.layers.entries()) {
    const name = `layer.${index}`;
    // Query, key and value are packed side by side, so that one product computes all three.
    for (const [third, part] of ['query', 'key', 'value'].entries()) {
      dense(`${name}/attention/self/${part}`, DIMENSIONS, DIMENSIONS, {
        panels: layer.qkv.panels + third * panelBytes(DIMENSIONS, DIMENSIONS),
        bias: layer.qkv.bias + third * DIMENSIONS * FLOAT_BYTES,
      });
    }
    dense(`${name}/attention/output/dense`, DIMENSIONS, DIMENSIONS, layer.context);
    norm(`${name}/attention/output`, layer.contextNorm);
    dense(`${name}/intermediate/dense`, DIMENSIONS, FEED_FORWARD, layer.rise);
    dense(`${name}/output/dense`, FEED_FORWARD, DIMENSIONS, layer.fall);
    norm(`${name}/output`, layer.outputNorm);
  }
  return {
    words: { table: plan.table, scale: words.scale, min: words.min },
    positions: plan.positions,
    embeddingNorm: plan.embeddingNorm,
    layers: plan.layers,
  };
}

function packPositions(files: ModelFiles, out: Float32Array): void {
  const position = files.tensor('embeddings/position', [POSITIONS, DIMENSIONS]);
  const type = files.tensor('embeddings/token_type', [2, DIMENSIONS]);
  for (let i = 0; i < out.length; i++) {
    const typeValue = (type.bytes[i % DIMENSIONS] ?? 0) * type.scale + type.min;
    out[i] = (position.bytes[i] ?? 0) * position.scale + position.min + typeValue;
  }
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
    out: take(MAX_TEXTS * DIMENSIONS),
    /** The panel of the current multiplication. */
    panel: take(FEED_FORWARD * 8),
    bytes: bump.size,
  };
}

/** A batch's token ids, all texts in a row, and the number of ids per text: 1 to MAX_TEXTS texts, at most MAX_ROWS ids. */
export interface TokenBatch {
  readonly ids: Int32Array;
  readonly lengths: readonly number[];
}

/**
 * Creates the model's forward pass on one thread.
 * @param memory holds the packed model and, at `scratch`, SCRATCH_BYTES that nothing else writes to
 * @returns a function from a batch to its unit vectors, [texts, DIMENSIONS] in a new array
 */
export function createForwardPass(
  module: WebAssembly.Module,
  memory: WebAssembly.Memory,
  layout: ModelLayout,
  scratch: number,
): (batch: TokenBatch) => Float32Array<ArrayBuffer> {
  const kernel = instantiateKernel(module, memory);
  const at = planScratch(scratch);

  function encodeLayer(layer: Layer, lengths: readonly number[], rows: number): void {
    // gemm processes four rows at a time; the last ones may be stale, which is harmless because rows are independent.
    const padded = Math.ceil(rows / 4) * 4;
    kernel.gemm(at.hidden, padded, DIMENSIONS, layer.qkv.panels, QKV, layer.qkv.bias, at.panel, at.qkv);
    eachText(lengths, (row, length) => {
      const context = at.context + row * DIMENSIONS * FLOAT_BYTES;
      kernel.attention(at.qkv + row * QKV * FLOAT_BYTES, length, at.scores, context);
    });
    const { context, contextNorm, rise, fall, outputNorm } = layer;
    kernel.gemm(at.context, padded, DIMENSIONS, context.panels, DIMENSIONS, context.bias, at.panel, at.delta);
    kernel.addAndNormalize(at.hidden, at.delta, rows, contextNorm.gamma, contextNorm.beta);
    kernel.gemm(at.hidden, padded, DIMENSIONS, rise.panels, FEED_FORWARD, rise.bias, at.panel, at.wide);
    kernel.gelu(at.wide, rows * FEED_FORWARD);
    kernel.gemm(at.wide, padded, FEED_FORWARD, fall.panels, DIMENSIONS, fall.bias, at.panel, at.delta);
    kernel.addAndNormalize(at.hidden, at.delta, rows, outputNorm.gamma, outputNorm.beta);
  }

  return ({ ids, lengths }) => {
    new Int32Array(memory.buffer, at.ids, MAX_ROWS).set(ids);
    const { table, scale, min } = layout.words;
    kernel.embed(at.ids, ids.length, table, scale, min, at.hidden);
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
    eachText(lengths, (row, length, text) => {
      kernel.pool(
        at.hidden + row * DIMENSIONS * FLOAT_BYTES,
        length,
        at.out + text * DIMENSIONS * FLOAT_BYTES,
      );
    });
    // Copied out of the shared memory, which the next batch overwrites.
    return Float32Array.from(new Float32Array(memory.buffer, at.out, lengths.length * DIMENSIONS));
  };
}

function eachText(
  lengths: readonly number[],
  visit: (row: number, length: number, text: number) => void,
): void {
  let row = 0;
  for (const [text, length] of lengths.entries()) {
    visit(row, length, text);
    row += length;
  }
}
