import type { Results, Revision, Scenario } from './suite.ts';

/** One run of the suite, as a row of the table. */
export interface Row {
  readonly run: string;
  readonly revision: Revision;
  readonly scenarios: number;
  readonly passed: number;
  /** In a comparison: that failed in the other run too. */
  readonly failedAsExpected: number;
  /** One line each; any makes the whole run fail. */
  readonly unexpected: readonly string[];
}

const MAX_LOG_CHARS = 4_000;
const MAX_LINE_CHARS = 1_000;

/** Why checks fail that may: keys are `scenario` (some of its checks fail) or `scenario:check-id`. */
export type Expected = Readonly<Record<string, string>>;

/** A warning is a failure too: what the specification says a peer SHOULD do. */
const hasFailed = ({ status }: Scenario['checks'][number]) => status === 'FAILURE' || status === 'WARNING';

const failuresOf = (scenario: Scenario | undefined) => scenario?.checks.filter(hasFailed) ?? [];

/** Holds the results against what is expected to fail: that fails, and nothing else does. */
export function judged(run: string, revision: Revision, results: Results, expected: Expected): Row {
  const used = new Set<string>();
  let failedAsExpected = 0;
  const unexpected = [...results].flatMap(([scenario, result]) => {
    const lines = failuresOf(result).flatMap(
      ({ id, description = 'no reason given', errorMessage = description }) => {
        const key = [scenario, `${scenario}:${id}`].find(each => each in expected);
        if (key === undefined) return [`${scenario}:${id} failed: ${errorMessage}`.slice(0, MAX_LINE_CHARS)];
        used.add(key);
        failedAsExpected++;
        return [];
      },
    );
    if (lines.length > 0 && result.log !== '')
      lines.push(`what the client of ${scenario} said:\n${result.log.slice(-MAX_LOG_CHARS)}`);
    return lines;
  });
  for (const key of Object.keys(expected).filter(each => !used.has(each)))
    unexpected.push(
      results.has(key.split(':')[0] ?? '')
        ? `${key} passes: expect it to`
        : `${key} is expected to fail and was not run`,
    );
  return { run, revision, ...counts(results), failedAsExpected, unexpected };
}

/** Holds the results against those of another run: every check ends alike. */
export function compared(run: string, revision: Revision, results: Results, other: Results): Row {
  let failedAlike = 0;
  const unexpected = [...new Set([...results.keys(), ...other.keys()])].flatMap(scenario => {
    const mine = outcomes(results.get(scenario));
    const theirs = outcomes(other.get(scenario));
    if (JSON.stringify(mine) === JSON.stringify(theirs)) {
      failedAlike += failuresOf(results.get(scenario)).length;
      return [];
    }
    const only = (some: string[], others: string[]) => some.filter(each => !others.includes(each)).join('; ');
    const here = `${mine.length} checks, only here: ${only(mine, theirs)}`;
    const there = `${theirs.length} checks, only there: ${only(theirs, mine)}`;
    return [[`${scenario} differs:`, here, there].map(line => line.slice(0, MAX_LINE_CHARS)).join('\n  ')];
  });
  return { run, revision, ...counts(results), failedAsExpected: failedAlike, unexpected };
}

/** Notes that are neither passed nor failed are left out: how many there are can depend on time. */
function outcomes(scenario: Scenario | undefined): string[] {
  const checks = scenario?.checks.filter(({ status }) => status !== 'INFO') ?? [];
  return checks.map(({ id, status, errorMessage = '' }) => `${id} ${status} ${errorMessage}`.trim()).sort();
}

function counts(results: Results) {
  const all = [...results.values()];
  const passed = all.flatMap(({ checks }) => checks.filter(({ status }) => status === 'SUCCESS')).length;
  return { scenarios: results.size, passed };
}

/** The table in Markdown. */
export function table(rows: readonly Row[]): string {
  const cells = [
    ['run', 'revision', 'scenarios', 'checks passed', 'failed as expected', 'unexpected'],
    ...rows.map(({ run, revision, scenarios, passed, failedAsExpected, unexpected }) => [
      run,
      revision,
      ...[scenarios, passed, failedAsExpected, unexpected.length].map(String),
    ]),
  ];
  const widths = cells[0]?.map((_, column) => Math.max(...cells.map(row => row[column]?.length ?? 0))) ?? [];
  const lines = cells.map(
    row => `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`,
  );
  lines.splice(1, 0, `| ${widths.map(width => '-'.repeat(width)).join(' | ')} |`);
  return lines.join('\n');
}
