import type { Results, Revision, Scenario } from './suite.ts';

/** One run of the suite, as a row of the table. */
export interface Row {
  readonly run: string;
  readonly revision: Revision;
  readonly scenarios: number;
  readonly passed: number;
  readonly failed: number;
  /** One line each; any makes the whole run fail. */
  readonly unexpected: readonly string[];
}

/** Why checks fail that may: keys are `scenario` (some of its checks fail) or `scenario:check-id`. */
export type Expected = Readonly<Record<string, string>>;

/** A warning is a failure too: what the specification says a peer SHOULD do. */
const hasFailed = ({ status }: Scenario['checks'][number]) => status === 'FAILURE' || status === 'WARNING';

const failuresOf = ({ checks }: Scenario) => checks.filter(hasFailed);

/** Holds the results against what is expected to fail: that fails, and nothing else does. */
export function judged(run: string, revision: Revision, results: Results, expected: Expected): Row {
  const used = new Set<string>();
  const unexpected: string[] = [];
  for (const [scenario, result] of results) {
    for (const { id, errorMessage } of failuresOf(result)) {
      const key = [scenario, `${scenario}:${id}`].find(each => each in expected);
      if (key === undefined)
        unexpected.push(`${scenario}:${id} failed: ${errorMessage ?? 'no reason given'}`);
      else used.add(key);
    }
    if (unexpected.some(line => line.startsWith(`${scenario}:`)) && result.log !== '')
      unexpected.push(`what the client of ${scenario} said:\n${result.log.slice(-4_000)}`);
  }
  for (const key of Object.keys(expected)) {
    const [scenario = ''] = key.split(':');
    if (results.has(scenario) && !used.has(key)) unexpected.push(`${key} passes: expect it to`);
  }
  return { run, revision, ...counts(results), unexpected };
}

/** Holds the results against those of another run: every check ends alike. */
export function compared(run: string, revision: Revision, results: Results, other: Results): Row {
  const unexpected = [...new Set([...results.keys(), ...other.keys()])].flatMap(scenario => {
    const [mine, theirs] = [results, other].map(all => outcomes(all.get(scenario)));
    const differs = (mine ?? []).filter(outcome => !theirs?.includes(outcome));
    if (JSON.stringify(mine) === JSON.stringify(theirs)) return [];
    return [
      `${scenario} differs from direct: ${mine?.length} checks for ${theirs?.length}; ${differs.join('; ')}`,
    ];
  });
  return { run, revision, ...counts(results), unexpected };
}

/** Notes that are neither passed nor failed are left out: how many there are can depend on time. */
function outcomes(scenario: Scenario | undefined): string[] {
  const checks = scenario?.checks.filter(({ status }) => status !== 'INFO') ?? [];
  return checks.map(({ id, status, errorMessage = '' }) => `${id} ${status} ${errorMessage}`.trim()).sort();
}

function counts(results: Results) {
  const all = [...results.values()];
  const passed = all.flatMap(({ checks }) => checks.filter(({ status }) => status === 'SUCCESS')).length;
  return { scenarios: results.size, passed, failed: all.flatMap(failuresOf).length };
}

/** The table in Markdown. */
export function table(rows: readonly Row[]): string {
  const cells = [
    ['run', 'revision', 'scenarios', 'checks passed', 'failed as expected', 'unexpected'],
    ...rows.map(({ run, revision, scenarios, passed, failed, unexpected }) => [
      run,
      revision,
      ...[scenarios, passed, unexpected.length === 0 ? failed : '', unexpected.length].map(String),
    ]),
  ];
  const widths = cells[0]?.map((_, column) => Math.max(...cells.map(row => row[column]?.length ?? 0))) ?? [];
  const lines = cells.map(
    row => `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`,
  );
  lines.splice(1, 0, `| ${widths.map(width => '-'.repeat(width)).join(' | ')} |`);
  return lines.join('\n');
}
