/**
 * Writes catalogue/vectors.bin, the vectors of the shipped catalogue's texts:
 * node scripts/build-vectors.ts [--check] [CATALOGUE [VECTORS]]
 *
 * Vectors that the file already has from the same embedder are kept. --check computes nothing: it exits 1 when the file misses
 * a text of the catalogue, holds one that nobody needs, or was made with another embedder.
 */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { readEntries } from '../src/core/catalogue/import-file.ts';
import { documentsOf } from '../src/core/search/documents.ts';
import { createMiniLmEmbedder } from '../src/core/search/embed/minilm/embedder.ts';
import {
  quantize,
  VectorFile,
  writeVectorFile,
  type QuantizedVector,
} from '../src/core/search/index/vectors.ts';
import { textHash } from '../src/core/search/index/vector-cache.ts';

const CATALOGUE_FOLDER = path.join(import.meta.dirname, '../catalogue');
const EMBED_BATCH = 100;

/** Every text that search embeds, by its hash in hexadecimal. */
async function textsOf(catalogueFile: string): Promise<Map<string, string>> {
  const { entries, problems } = readEntries(await readFile(catalogueFile, 'utf8'), { allowHttp: false });
  const [problem] = problems;
  if (problem) throw new Error(`${catalogueFile}: line ${problem.line} ${problem.reason}`);
  const parts = entries.flatMap(entry => documentsOf({ ...entry, tools: entry.tools ?? [] }).parts);
  return new Map(parts.map(({ prose }) => [textHash(prose).toString('hex'), prose]));
}

async function build(catalogueFile: string, vectorFile: string): Promise<void> {
  const texts = [...(await textsOf(catalogueFile))];
  const embedder = await createMiniLmEmbedder();
  const old = await VectorFile.read(vectorFile).catch(() => undefined);
  using kept = old?.embedderId === embedder.id ? old.open() : undefined;
  const entries: (readonly [hash: Buffer, vector: QuantizedVector])[] = [];
  for (let at = 0; at < texts.length; at += EMBED_BATCH) {
    const batch = texts.slice(at, at + EMBED_BATCH).map(([hash, text]) => {
      const bytes = Buffer.from(hash, 'hex');
      return { bytes, text, known: kept?.find(bytes) };
    });
    const missing = batch.filter(({ known }) => known === undefined);
    const made = await embedder.embed(
      missing.map(({ text }) => text),
      'index',
    );
    const vectorOf = new Map(missing.map(({ text }, position) => [text, made[position]]));
    for (const { bytes, text, known } of batch)
      entries.push([bytes, known ?? quantize(vectorOf.get(text) ?? new Float32Array())]);
  }
  const file = writeVectorFile({ embedderId: embedder.id, dimensions: embedder.dimensions, entries });
  await embedder.close();
  await writeFile(vectorFile, file);
  console.log(`${vectorFile}: ${entries.length} vectors, ${file.length} bytes`);
}

/** What is wrong with the file, if anything. */
async function drift(catalogueFile: string, vectorFile: string): Promise<string | undefined> {
  const file = await VectorFile.read(vectorFile);
  const embedder = await createMiniLmEmbedder({ threads: 1 });
  await embedder.close();
  if (file.embedderId !== embedder.id) return `made with ${file.embedderId}, not ${embedder.id}`;
  const texts = await textsOf(catalogueFile);
  const held = new Set(file.hashes().map(hash => hash.toString('hex')));
  const missing = [...texts.keys()].filter(hash => !held.has(hash));
  const needless = [...held].filter(hash => !texts.has(hash));
  if (missing.length + needless.length === 0) return undefined;
  return `${missing.length} texts without a vector, ${needless.length} vectors without a text`;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { check: { type: 'boolean' } },
});
const catalogueFile = positionals[0] ?? path.join(CATALOGUE_FOLDER, 'servers.jsonl');
const vectorFile = positionals[1] ?? path.join(CATALOGUE_FOLDER, 'vectors.bin');
if (values.check) {
  const problem = await drift(catalogueFile, vectorFile).catch((error: unknown) => String(error));
  if (problem !== undefined) {
    console.error(`${vectorFile} is out of date: ${problem}. Run node scripts/build-vectors.ts`);
    process.exitCode = 1;
  }
} else await build(catalogueFile, vectorFile);
