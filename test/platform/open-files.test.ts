import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { openFilesLimit } from '../../src/platform/open-files.ts';
import { temporaryFolder } from '../support/program.ts';

it.each([
  ['4096', 4_096],
  ['unlimited', undefined],
])('reads a limit of %s', async (soft, limit) => {
  await using folder = temporaryFolder();
  const file = path.join(folder.path, 'limits');
  writeFileSync(file, `Max processes 7 7 processes\nMax open files            ${soft}    9999    files\n`);
  expect(openFilesLimit(file)).toBe(limit);
  expect(openFilesLimit(`${file}.missing`)).toBeUndefined();
});
