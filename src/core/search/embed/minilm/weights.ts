import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { z } from 'zod';

/** The weights and the vocabulary, made by `bench/model/train.py`. */
const FILE = new URL('model.safetensors.gz', import.meta.url);

/** SHA-256 of the file, in hex: part of the embedder's id. */
export const WEIGHTS_SHA256 = 'e40836b160b7570905c9330814e97f6420866fdcf2898a9f545dbe332731ad9e';

/** The model's file is missing or differs from the pinned one. The message names the file and says what to do. */
export class WeightsUnavailable extends Error {
  override readonly name = 'WeightsUnavailable';
}

export interface Tensors {
  /**
   * Returns the little-endian, row-major bytes of a tensor, as a view.
   * @throws WeightsUnavailable if there is none with that type and shape
   */
  bytes(name: string, dtype: 'I8' | 'F32', shape: readonly number[]): Uint8Array;
}

interface Model {
  readonly tensors: Tensors;
  /** WordPiece -> id. */
  readonly vocabulary: ReadonlyMap<string, number>;
}

/**
 * Reads the model after verifying the file's SHA-256.
 * @param file gzipped safetensors with the vocabulary in the metadata, one piece per line
 * @throws WeightsUnavailable
 */
export async function readModel(file: URL = FILE): Promise<Model> {
  const compressed = await readFile(file).catch((cause: unknown) => {
    throw new WeightsUnavailable(`The embedding model ${file.pathname} cannot be read: ${REMEDY}`, { cause });
  });
  const sha256 = createHash('sha256').update(compressed).digest('hex');
  if (sha256 !== WEIGHTS_SHA256) {
    throw new WeightsUnavailable(
      `The embedding model ${file.pathname} has sha256 ${sha256}, not ${WEIGHTS_SHA256}: ${REMEDY}`,
    );
  }
  return readSafetensors(await promisify(gunzip)(compressed));
}

export const REMEDY = 'install Switchboard again.';

const Header = z.object({ __metadata__: z.object({ vocabulary: z.string() }) }).catchall(
  z.object({
    dtype: z.string(),
    shape: z.array(z.int().nonnegative()),
    data_offsets: z.tuple([z.int().nonnegative(), z.int().nonnegative()]),
  }),
);

/** Reads the safetensors format: the length of the header as u64, the header as JSON, and the tensors. */
function readSafetensors(file: Buffer): Model {
  const start = 8 + Number(file.readBigUInt64LE());
  const { __metadata__: metadata, ...entries } = Header.parse(JSON.parse(file.toString('utf8', 8, start)));
  const pieces = metadata.vocabulary.split('\n');
  return {
    vocabulary: new Map(pieces.map((piece, id) => [piece, id])),
    tensors: {
      bytes(name, dtype, shape) {
        const entry = entries[name];
        if (entry?.dtype !== dtype || entry.shape.join() !== shape.join())
          throw new WeightsUnavailable(
            `The model has no ${dtype} tensor ${name} of shape [${shape.join(', ')}]`,
          );
        const [begin, end] = entry.data_offsets;
        return file.subarray(start + begin, start + end);
      },
    },
  };
}
