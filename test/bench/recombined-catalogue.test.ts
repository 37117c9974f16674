import { describe, expect, it } from 'vitest';
import { RecombinedCatalogue } from '../../bench/scale/catalogue.ts';
import { entrySchema } from '../../src/core/catalogue/entry.ts';
import { documentsOf } from '../../src/core/search/documents.ts';

const NAMES = ['alpha', 'beta', 'gamma', 'delta', 'epsilon'];

const tool = (server: string, verb: string) => {
  return { name: `${verb}_${server}`, description: `Can ${verb} in ${server}.`, input_schema: {} };
};

const originals = NAMES.map(id => {
  const description = `The server ${id}. It reads. It also writes!`;
  const tools = ['list', 'read', 'write', 'drop'].map(verb => tool(id, verb));
  return { id, name: id, description, remote_url: `https://${id}.example/mcp`, tools };
});

const SIZE = 400;
const servers = new RecombinedCatalogue(originals).servers(0, SIZE);

describe('RecombinedCatalogue', () => {
  it('makes the same servers each time, whatever the size of the catalogue', () => {
    const again = new RecombinedCatalogue(originals);
    expect(again.servers(300, SIZE)).toEqual(servers.slice(300));
  });

  it('makes valid entries with ids, addresses and texts of their own, and as many tools as the originals', () => {
    for (const server of servers) {
      expect(entrySchema.safeParse(server).error).toBeUndefined();
      expect(new Set(server.tools?.map(({ name }) => name)).size).toBe(4);
    }
    const different = (of: (server: (typeof servers)[number]) => string) => new Set(servers.map(of)).size;
    expect(different(({ id }) => id)).toBe(SIZE);
    expect(different(({ remote_url }) => remote_url)).toBe(SIZE);
    expect(different(({ tools = [], ...server }) => documentsOf({ ...server, tools }).whole)).toBe(SIZE);
  });

  it('begins each description with words of another text, so that hardly two texts are equal', () => {
    const words = (text: string) => NAMES.filter(name => text.includes(name));
    expect(servers.some(({ description }) => words(description).length === 2)).toBe(true);
    expect(servers.some(({ tools }) => words(tools?.[0]?.description ?? '').length === 2)).toBe(true);
  });

  it('says which texts a text is made of', () => {
    const recombined = new RecombinedCatalogue(originals);
    for (const [number, { name, description, tools = [] }] of servers.entries()) {
      const mixtures = recombined.mixtures(number);
      expect(mixtures).toHaveLength(1 + tools.length);
      const descriptions = [description, ...tools.map(one => one.description)];
      for (const [at, { own, foreign }] of mixtures.entries()) {
        expect(own.prose).toContain(name);
        expect(descriptions[at]).toBe(`${foreign.description}. ${own.description}`);
      }
    }
  });

  it('refuses a source without servers', () => {
    expect(() => new RecombinedCatalogue([])).toThrow(RangeError);
  });
});
