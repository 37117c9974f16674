/**
 * Compiles `src/core/search/embed/minilm/kernel.as.ts` (AssemblyScript, with what it imports) to the committed `kernel.wasm` beside it.
 *
 *   node scripts/build-kernel.ts           writes kernel.wasm
 *   node scripts/build-kernel.ts --check   writes nothing; exit code 1 when kernel.wasm is not what the source gives
 */
import { readFile, writeFile } from 'node:fs/promises';
import { main } from 'assemblyscript/asc';

const folder = new URL('../src/core/search/embed/minilm/', import.meta.url);
const artefact = new URL('kernel.wasm', folder);

const OPTIONS = [
  '-O3',
  '--converge',
  '--noAssert',
  '--runtime=stub',
  '--use=abort=',
  '--enable=simd,threads',
  // A shared memory needs a maximum; the real one is set by whoever makes the memory: 65,536 pages = 4 GiB.
  '--importMemory',
  '--noExportMemory',
  '--sharedMemory',
  '--maximumMemory=65536',
];

async function compile(): Promise<Uint8Array> {
  let binary: Uint8Array | undefined;
  let messages = '';
  const { error } = await main(['kernel.as.ts', '--outFile=kernel.wasm', ...OPTIONS], {
    readFile: name => readFile(new URL(name, folder), 'utf8').catch(() => null),
    writeFile: (_name, contents) => {
      if (typeof contents !== 'string') binary = contents;
    },
    listFiles: () => [],
    stderr: {
      write(chunk) {
        messages += String(chunk);
      },
    },
  });
  if (error || !binary) throw new Error(`kernel.as.ts does not compile: ${messages}`, { cause: error });
  return binary;
}

const compiled = await compile();
if (process.argv.includes('--check')) {
  const committed = await readFile(artefact).catch(() => Buffer.alloc(0));
  if (!committed.equals(compiled)) {
    console.error('kernel.wasm is not what kernel.as.ts compiles to: run `node scripts/build-kernel.ts`.');
    process.exitCode = 1;
  }
} else {
  await writeFile(artefact, compiled);
  console.log(`kernel.wasm: ${compiled.length} bytes`);
}
