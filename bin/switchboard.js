#!/usr/bin/env node
import { setFlagsFromString } from 'node:v8';

// Plain JavaScript, so that a Node too old for the TypeScript sources can still say so in one line.
const [major = 0] = process.versions.node.split('.').map(Number);
if (major < 24) {
  process.stderr.write(
    `switchboard: needs Node 24 or later, this is ${process.version}. On Linux, run it through npm or npx: they bring Node 24.\n`,
  );
  process.exitCode = 1;
} else {
  // V8 gives no memory back while the process is busy, so the heap may grow only 30 % beyond what is in use.
  setFlagsFromString('--heap-growing-percent=30');
  await import('./resolve-drizzle.js');
  await import('../src/main.ts');
}
