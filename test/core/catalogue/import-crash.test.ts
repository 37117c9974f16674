import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Server } from '../../../src/core/catalogue/entry.ts';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import { openDatabase } from '../../../src/platform/database/database.ts';
import { temporaryFolder } from '../../support/program.ts';

const SCRIPT = path.resolve('test/core/catalogue/killed-import.ts');
const folder = temporaryFolder();

/** The exit code and signal of an import that replaces everything by a version. */
async function replaceBy(version: string, killedBefore?: number): Promise<unknown[]> {
  const options = killedBefore === undefined ? [] : [String(killedBefore)];
  const child = spawn(process.execPath, [SCRIPT, folder.path, version, ...options], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  return (await once(child, 'exit')) as unknown[];
}

/** The versions that what is stored is of, and the active servers. */
async function stored() {
  await using opened = new AsyncDisposableStack();
  const database = await openDatabase(folder.path);
  opened.defer(() => database.close());
  const catalogue = await Catalogue.load(database.db);
  const active: Server[] = [];
  for await (const server of catalogue.servers()) active.push(server);
  const texts = active.flatMap(({ name, description, tools }) => [
    name,
    description,
    ...tools.map(tool => tool.description),
  ]);
  return {
    ids: active.map(({ id }) => id).sort(),
    tools: active.map(({ tools }) => tools.length),
    versions: [...new Set(texts.map(text => /old|new/.exec(text)?.[0]))],
  };
}

describe('a replacement cut short by a kill', () => {
  beforeAll(async () => expect(await replaceBy('old')).toEqual([0, null]));
  afterAll(() => folder[Symbol.asyncDispose]());

  it.each([2, 4, 6])('leaves all of the old catalogue, killed before write %i', async statement => {
    expect(await replaceBy('new', statement)).toEqual([null, 'SIGKILL']);
    expect(await stored()).toEqual({ ids: ['a', 'b', 'only-old'], tools: [1, 120, 1], versions: ['old'] });
  });

  it('is done as a whole by the next one', async () => {
    expect(await replaceBy('new')).toEqual([0, null]);
    expect(await stored()).toEqual({ ids: ['a', 'b', 'only-new'], tools: [1, 120, 1], versions: ['new'] });
  });
});
