import { describe, expect, it } from 'vitest';
import { idFor } from '../../../src/core/registry/entry.ts';
import { registryUrl } from '../../../src/config/catalogue.ts';

describe('registryUrl', () => {
  it.each([
    ['https://r.example', 'https://r.example'],
    ['https://R.example/', 'https://r.example'],
    ['https://r.example/v0.1/servers?limit=3#x', 'https://r.example'],
    ['https://r.example/v0.1/', 'https://r.example'],
    ['https://r.example:443/team/v0/servers/', 'https://r.example/team'],
    ['http://127.0.0.1:8080/v0.1', 'http://127.0.0.1:8080'],
  ])('%s is %s', (address, source) => {
    expect(registryUrl(address)).toBe(source);
  });

  it.each(['', 'r.example', 'ftp://r.example', 'https://u:p@r.example'])('refuses %j', address => {
    expect(() => registryUrl(address)).toThrow(/^must /);
  });
});

describe('idFor', () => {
  const nobody = () => undefined;
  it.each([
    ['io.github.Ada/My_Server', 'io.github.ada_my_server'],
    ['-odd/name', expect.stringMatching(/^odd_name-[0-9a-f]{10}$/)],
    ['Switchboard', expect.stringMatching(/^switchboard-[0-9a-f]{10}$/)],
    [`x.y/${'l'.repeat(190)}`, expect.stringMatching(/^x\.y_l{112,113}-[0-9a-f]{10}$/)],
  ])('%s', (name, id) => {
    expect(idFor(name, nobody)).toEqual(id);
    expect(idFor(name, nobody)).toMatch(/^[a-z0-9][a-z0-9._-]{0,127}$/);
  });

  it('leaves an id to the name that has it', () => {
    expect(idFor('x.y/a', () => 'x.y/a')).toBe('x.y_a');
    expect(idFor('x.y/A', () => 'x.y/a')).toMatch(/^x\.y_a-[0-9a-f]{10}$/);
  });
});
