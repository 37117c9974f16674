import { describe, expect, it } from 'vitest';
import { compared, judged, table } from '../../scripts/conformance/report.ts';
import type { Scenario } from '../../scripts/conformance/suite.ts';

const scenario = (...checks: Scenario['checks']): Scenario => ({ checks, log: '' });
const passed = { id: 'a', status: 'SUCCESS' } as const;
const failed = { id: 'a', status: 'FAILURE', errorMessage: 'Not so' } as const;
const warned = { id: 'a', status: 'WARNING', errorMessage: 'Better not' } as const;

describe('the verdict on a run of the conformance suite', () => {
  const verdict = (result: Scenario, expected = {}) =>
    judged('direct', '2026-07-28', new Map([['ping', result]]), expected).unexpected;

  it('is good when all checks pass', () => {
    expect(verdict(scenario(passed))).toEqual([]);
  });

  it('names an unexpected failure and an unexpected warning', () => {
    expect(verdict(scenario(failed))).toEqual(['ping:a failed: Not so']);
    expect(verdict(scenario(warned))).toEqual(['ping:a failed: Better not']);
    expect(verdict(scenario(passed, { ...failed, id: 'b' }), { 'ping:c': 'why' })).toContain(
      'ping:b failed: Not so',
    );
  });

  it('takes a failure that is expected, by the scenario or by the check', () => {
    expect(verdict(scenario(failed), { ping: 'why' })).toEqual([]);
    expect(verdict(scenario(failed), { 'ping:a': 'why' })).toEqual([]);
  });

  it('names what passes against expectation', () => {
    expect(verdict(scenario(passed), { ping: 'why' })).toEqual(['ping passes: expect it to']);
    expect(verdict(scenario(passed), { 'ping:a': 'why' })).toEqual(['ping:a passes: expect it to']);
  });

  it('names an expectation of a scenario that does not exist', () => {
    expect(verdict(scenario(passed), { pong: 'why' })).toEqual(['pong is expected to fail and was not run']);
  });

  it('shows what the client said beside a failure', () => {
    expect(verdict({ checks: [failed], log: 'refused' })).toContain('what the client of ping said:\nrefused');
  });
});

describe('the comparison of two runs of the conformance suite', () => {
  const differences = (result: Scenario | undefined, other: Scenario) => {
    const results = new Map(result ? [['ping', result]] : []);
    return compared('through', '2026-07-28', results, new Map([['ping', other]])).unexpected;
  };

  it('is good when every check ends alike, in any order and whatever the notes say', () => {
    const other = { id: 'b', status: 'SUCCESS' } as const;
    const note = { id: 'n', status: 'INFO' } as const;
    expect(differences(scenario(passed, other), scenario(other, note, passed))).toEqual([]);
  });

  it('names a scenario with a check that ends otherwise, fails otherwise, is missing or was not run', () => {
    expect(differences(scenario(failed), scenario(passed))).toHaveLength(1);
    expect(differences(scenario(passed), scenario(failed))).toHaveLength(1);
    expect(differences(scenario(failed), scenario({ ...failed, errorMessage: 'Otherwise' }))).toHaveLength(1);
    expect(differences(scenario(passed), scenario(passed, passed))).toHaveLength(1);
    expect(differences(undefined, scenario(passed))).toHaveLength(1);
  });
});

it('the table counts what passed, what failed as expected and what should not have', () => {
  const results = new Map([['ping', scenario(passed, failed)]]);
  const lines = table([
    judged('direct', '2026-07-28', results, { ping: 'why' }),
    judged('face', '2026-07-28', results, {}),
  ]).split('\n');
  const cells = lines.map(line => line.split('|').map(cell => cell.trim()));
  expect(cells[2]).toEqual(['', 'direct', '2026-07-28', '1', '1', '1', '0', '']);
  expect(cells[3]).toEqual(['', 'face', '2026-07-28', '1', '1', '0', '1', '']);
});
