import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, expectTypeOf, it } from 'vitest';
import type { ErrorCode, Switchboard, SwitchboardError } from '../../client/src/index.ts';
import type { ErrorCode as OwnCode } from '../../src/errors.ts';
import { temporaryFolder } from '../support/program.ts';

const HEAD = `import { isSwitchboardError, Switchboard, unwrap } from '@switchboard/client';
export const client = new Switchboard({ url: 'http://127.0.0.1:8080', apiKey: 'key' });
export const found = await client.search({ query: 'echo', limit: 1, explain: true });
export const error: unknown = undefined;`;

/** What the guide leaves to the app. */
const PRELUDE = `import type { Session, TokenStore } from '@switchboard/client';
declare const response: { redirect(url: string): void };
declare const signal: AbortSignal;
declare const store: TokenStore;
declare const error: { readonly session: Session };
declare function show(url: string): void;`;

const WRONG = [
  ['a field that a request does not have', `await client.search({ query: 'echo', limt: 1 });`],
  ['a missing field', `await client.callTool({ server_id: 'everything' });`],
  ['a value of the wrong type', `await client.listTools({ server_id: 7 });`],
  ['a field that a response does not have', `found.servers[0]?.score;`],
  ['a code that is not in the list', `isSwitchboardError(error, 'server_not_fond');`],
  ['a sign-in without a provider', `await client.signIn({ user_id: 'ada' }, { open: console.log });`],
  ['a path that there is not', `await unwrap(client.api.POST('/v1/serch', { body: { query: 'echo' } }));`],
  ['a method that a path does not have', `await unwrap(client.api.GET('/v1/search'));`],
] as const;

/** Compiles a module for a browser, under the rules of this repository. Resolves to the lines that have errors. */
async function wrongLines(
  lines: readonly string[],
  compilerOptions: object = {},
): Promise<(string | undefined)[]> {
  await using folder = temporaryFolder();
  const paths = { '@switchboard/client': [path.resolve('client/src/index.ts')] };
  const config = {
    extends: path.resolve('client/tsconfig.json'),
    compilerOptions: { paths, ...compilerOptions },
    include: ['module.ts'],
  };
  await writeFile(path.join(folder.path, 'tsconfig.json'), JSON.stringify(config));
  await writeFile(path.join(folder.path, 'package.json'), '{"type":"module"}');
  await writeFile(path.join(folder.path, 'module.ts'), lines.join('\n'));
  const args = [path.resolve('node_modules/typescript/bin/tsc'), '-p', folder.path, '--pretty', 'false'];
  const output = await new Promise<string>(resolve => {
    execFile(process.execPath, args, (_error, stdout, stderr) => resolve(stdout + stderr));
  });
  return [...output.matchAll(/^(.+)\((\d+),\d+\): error/gm)].map(([whole, file = '', line]) =>
    file.endsWith('module.ts') ? lines[Number(line) - 1] : whole,
  );
}

describe('the types', () => {
  it('refuse what the API would refuse, and nothing else', async () => {
    const statements = WRONG.map(([, statement]) => statement);
    expect(new Set(await wrongLines([...HEAD.split('\n'), ...statements]))).toEqual(new Set(statements));
  });

  it('accept what the guide shows', async () => {
    const guide = await readFile('docs/client.md', 'utf8');
    const blocks = [...guide.matchAll(/^```ts\n([\s\S]*?)^```/gm)].map(([, block = '']) => block);
    expect(blocks.length).toBeGreaterThan(5);
    const lines = [...PRELUDE.split('\n'), ...blocks.join('').split('\n')];
    expect(await wrongLines(lines, { noUncheckedIndexedAccess: false, noUnusedLocals: false })).toEqual([]);
  });

  it('have all codes of errors', () => {
    expectTypeOf<ErrorCode>().toEqualTypeOf<OwnCode | 'unexpected_response'>();
    expectTypeOf<SwitchboardError<'rate_limited'>['code']>().toEqualTypeOf<'rate_limited'>();
  });

  it('have the fields of responses', () => {
    type Found = Awaited<ReturnType<Switchboard['search']>>;
    expectTypeOf<Found['servers'][number]['tools'][number]['name']>().toEqualTypeOf<string>();
    expectTypeOf<Found['metadata']['query_log_id']>().toEqualTypeOf<string>();
    type Result = Awaited<ReturnType<Switchboard['callTool']>>;
    expectTypeOf<Result['isError']>().toEqualTypeOf<boolean>();
    expectTypeOf<Result['content'][number]>().toEqualTypeOf<Record<string, unknown>>();
  });
});
