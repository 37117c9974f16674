import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fillAddress } from '../../../src/core/catalogue/address-template.ts';
import {
  checkValues,
  credentialFields,
  fillIn,
  variablesProblem,
} from '../../../src/core/catalogue/credential-schema.ts';

const server = (remoteUrl: string, auth: object = {}) => ({ remoteUrl, auth });
const fill = (address: string, values: Record<string, string>) =>
  fillAddress(address, new Map(Object.entries(values)))?.href;

describe('the variables of an address', () => {
  it.each([
    ['https://h.example/{tenant}/mcp', { tenant: 'a b?c#d%2F' }, 'https://h.example/a%20b%3Fc%23d%252F/mcp'],
    [
      'https://h.example/mcp?key={key}&v=1',
      { key: 'a&b=c+d#e' },
      'https://h.example/mcp?key=a%26b%3Dc%2Bd%23e&v=1',
    ],
    ['https://h.example/mcp?key={key}&region={region}', { key: 'k' }, 'https://h.example/mcp?key=k'],
    ['https://h.example/mcp?region={region}', {}, 'https://h.example/mcp'],
    ['https://h.example/t-{a}.{b}/mcp', { a: '1', b: '2' }, 'https://h.example/t-1.2/mcp'],
    ['https://h.example/{a}/{a}', { a: 'x' }, 'https://h.example/x/x'],
  ])('of %s are filled percent-encoded', (address, values, filled) => {
    expect(fill(address, values)).toBe(filled);
  });

  it.each([
    ['https://h.example/a/{v}/mcp', { v: '..' }],
    ['https://h.example/a/{v}/mcp', { v: '.' }],
    ['https://h.example/a/b/{v}', { v: '..' }],
    ['https://h.example/{a}{b}/mcp', { a: '.', b: '.' }],
    ['https://h.example/.{a}/mcp', { a: '.' }],
    ['https://h.example/%2e{a}/mcp', { a: '.' }],
    ['https://h.example/{a}', { a: 'x'.repeat(9_000) }],
  ])('of %s are not filled with what makes another path of it, or a long one', (address, values) => {
    expect(fill(address, values)).toBeUndefined();
  });

  it('never lead out of their own part of the path or the query, whatever they are filled with', () => {
    const value = fc.oneof(
      fc.string(),
      fc.string({ unit: fc.constantFrom('.', '/', '\\', '%', '2', 'e', 'f', '?', '#', '@', ':') }),
    );
    fc.assert(
      fc.property(value, value, (a, b) => {
        if (!a.isWellFormed() || !b.isWellFormed()) return;
        const url = fillAddress(
          'https://h.example/t/{a}/mcp?key={b}&v=1',
          new Map([
            ['a', a],
            ['b', b],
          ]),
        );
        if (!url) return;
        expect(url.origin).toBe('https://h.example');
        expect(url.hash).toBe('');
        expect(url.pathname).toMatch(/^\/t\/[^/\\]*\/mcp$/);
        expect([...url.searchParams]).toEqual([
          ['key', b],
          ['v', '1'],
        ]);
      }),
      { numRuns: 2_000 },
    );
  });

  it.each([
    'https://{tenant}.h.example/mcp',
    'https://h.example:{port}/mcp',
    'https://h.example/mcp#{x}',
    '{scheme}://h.example/',
  ])('may not be anywhere else: %s', address => {
    expect(variablesProblem(server(address), true)).toBe(
      'remote_url: may have {variables} only in its path and its query',
    );
  });

  it('belong to servers that take values, and are all in the address', () => {
    const address = 'https://h.example/{tenant}/mcp';
    expect(variablesProblem(server(address), false)).toMatch(/auth\.kind must be credentials$/);
    expect(variablesProblem(server(address, { variables: { tennant: {} } }), true)).toBe(
      'auth.variables: remote_url has no {tennant}',
    );
    expect(variablesProblem(server(address, { variables: { tenant: {} } }), true)).toBeUndefined();
    expect(variablesProblem(server('https://h.example/{a}{b}{c}{d}{e}'), true)).toMatch(/at most 4/);
    expect(variablesProblem(server('https://h.example/{}/{ not a name }'), false)).toBeUndefined();
  });

  it('are asked for like the values of headers; in the path always, with no header unless the entry names one', () => {
    const asking = server('https://h.example/{tenant}/mcp?region={region}', {
      variables: {
        tenant: { description: 'Of your account.', required: false, secret: false },
        region: { required: false, secret: false, choices: ['eu', 'us'], default: 'eu' },
      },
    });
    expect(credentialFields(asking)).toMatchObject([
      { name: 'tenant', isRequired: true, isSecret: false, description: 'Of your account.' },
      { name: 'region', isRequired: false, choices: ['eu', 'us'], default: 'eu' },
    ]);
    expect(fillIn(asking, { values: { tenant: 'acme' } })).toEqual({
      headers: {},
      secrets: [],
      url: new URL('https://h.example/acme/mcp?region=eu'),
    });
    expect(fillIn(asking, { values: {} })).toEqual({ missing: ['tenant'] });
    expect(() => checkValues(asking, { values: { tenant: 'acme', region: 'mars' } })).toThrow(
      /one of eu, us/,
    );
    expect(() => checkValues(asking, { values: { tenant: 'acme' }, header: 'X-Key' })).toThrow(
      /values go into its address/,
    );
    const both = server(asking.remoteUrl, { headers: [{ name: 'X-Key' }] });
    expect(credentialFields(both).map(({ name }) => name)).toEqual(['X-Key', 'tenant', 'region']);
  });

  it.each(['a/b', 'a\\b', '..', '.', '..%2f..', 'a%5Cb', '%2e%2e', 'a\nb', 'a\u0000b'])(
    'in the path cannot be %j, which no text repeats',
    value => {
      const check = () =>
        checkValues(server('https://h.example/{tenant}/mcp'), { values: { tenant: value } });
      expect(check).toThrow(/^values\.tenant: must /);
    },
  );
});
