import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { makeDataDir } from '../support/data-dir.ts';
import { begin, run, serve, temporaryFolder, type Finished } from '../support/program.ts';

const TOOLS = 240;
const entry = (id: string, tools: readonly object[] = []) =>
  JSON.stringify({ id, name: id, description: `The ${id}.`, remote_url: `https://${id}.example/mcp`, tools });

/** One server whose tools take some seconds to embed. */
async function workspace() {
  const folder = temporaryFolder();
  const tools = Array.from({ length: TOOLS }, (_, at) => ({
    name: `tool_${at}`,
    description: `Looks up entry ${at} of the register of ships.`,
  }));
  const file = path.join(folder.path, 'large.jsonl');
  await writeFile(file, [entry('large', tools), entry('last')].join('\n'));
  const catalogue = path.join(folder.path, 'catalogue.jsonl');
  await writeFile(catalogue, entry('small'));
  const env = {
    SWITCHBOARD_DATA_DIR: await makeDataDir(path.join(folder.path, 'data')),
    SWITCHBOARD_CATALOGUE: catalogue,
  };
  return { env, file, [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose]() };
}

/** How many texts a run that was over had to embed. */
const toEmbed = ({ stderr }: Finished) => Number(/^0 of (\d+) texts embedded$/m.exec(stderr)?.[1]);

const HALF = /^(1\d\d) of 242 texts embedded/m;

describe('catalogue import', () => {
  it.each(['the server', 'the command, without a server'])(
    'embeds no text again that was embedded before %s was killed',
    async killed => {
      await using space = await workspace();
      const { env, file } = space;
      const isServer = killed === 'the server';
      await using first = isServer ? await serve(env) : undefined;
      await using importing = begin(['catalogue', 'import', file], env);
      const [, done] = await importing.complaint(HALF);
      if (first) await first.stop('SIGKILL');
      else importing.kill();
      const cut = await importing.finished;
      expect(cut.code).toBe(isServer ? 1 : null);
      if (isServer) expect(cut.stderr).toMatch(/connection to the server was lost .* Run the command again/);

      await using _second = isServer ? await serve(env) : undefined;
      // All or nothing: the half that was embedded is not to be found.
      expect((await run(['catalogue', 'show', 'large'], env)).code).toBe(1);
      const again = await run(['catalogue', 'import', file], env);
      expect(again).toMatchObject({ code: 0, stdout: '2 servers imported.\n' });
      expect(toEmbed(again)).toBeLessThanOrEqual(TOOLS + 2 - Number(done));
      expect((await run(['search', 'register of ships'], env)).stdout).toContain('large');
    },
  );

  it.each(['SIGKILL', 'SIGINT'] as const)(
    'ends in the server when the command that asked for it is ended by %s, and what was embedded is kept',
    async signal => {
      await using space = await workspace();
      const { env, file } = space;
      await using _server = await serve(env);
      await using importing = begin(['catalogue', 'import', file], env);
      const [, done] = await importing.complaint(HALF);
      importing.kill(signal);
      await importing.finished;
      // Its turn comes when the other import has ended, one way or the other.
      const next = path.join(path.dirname(file), 'next.jsonl');
      await writeFile(next, entry('next'));
      expect((await run(['catalogue', 'import', next], env)).code).toBe(0);
      expect((await run(['catalogue', 'show', 'last'], env)).code).toBe(1);
      expect((await run(['search', 'register of ships'], env)).stdout).not.toContain('large');
      const again = await run(['catalogue', 'import', file], env);
      expect(again).toMatchObject({ code: 0, stdout: '2 servers imported.\n' });
      expect(toEmbed(again)).toBeLessThanOrEqual(TOOLS + 2 - Number(done));
    },
  );
});
