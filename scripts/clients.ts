/**
 * `npm run test:clients [-- WORD…]`: real MCP clients against a real Switchboard, all on 127.0.0.1. A mock model stands
 * behind the agents, and shows what a model is given. The program on docs/python.md is run as well. Then each client, and some
 * more, get the address alone and sign in through a browser. WORDs choose by titles (`claude`, `go`, `docs`, `sign-in`). What cannot be installed here is skipped; with SWITCHBOARD_TEST_REQUIRE_CLIENTS=1 it is a failure
 * when that goes for all of them. Prints what failed and a table, and fails when anything has.
 */
import { CLIENT_KINDS, type Client, type ClientKind } from './clients/client.ts';
import { CannotInstall } from './clients/install.ts';
import { unlessAborted } from './clients/processes.ts';
import { PYTHON_PAGE, runPythonPage } from './clients/python-page.ts';
import { SCENARIOS, type Scenario, type Upstream } from './clients/scenarios.ts';
import { SIGN_IN_KINDS } from './clients/sign-in-clients.ts';
import { tryAddressAlone, tryKey } from './clients/sign-in.ts';
import { startSetting, type Setting } from './clients/setting.ts';

const CLIENT_TIMEOUT_MS = 90_000;

type Outcome = 'passed' | 'FAILED' | 'skipped';

/** The results of one client: an outcome for each scenario, and the titles of those that failed, by the reason. */
interface Column {
  readonly title: string;
  readonly outcomes: readonly Outcome[];
  readonly failures: ReadonlyMap<string, readonly string[]>;
}

const reasonOf = (error: unknown) => (error instanceof Error ? error.message : String(error));
const titleOf = ({ title, upstream }: Scenario) => `${title} (${upstream})`;
const userOf = (kind: ClientKind) => `user-of-${CLIENT_KINDS.indexOf(kind)}`;
const unlistedId = (kind: ClientKind, scenario: Scenario) =>
  `unlisted-${CLIENT_KINDS.indexOf(kind)}-${SCENARIOS.indexOf(scenario)}`;

/** A client that cannot be had here is skipped; one that does not start or does not get on with Switchboard fails. */
async function column(kind: ClientKind, setting: Setting, signal: AbortSignal): Promise<Column> {
  const { title } = kind;
  try {
    const start = await kind.install(signal);
    const user = userOf(kind);
    await using client = await start(await setting.serversFor(user));
    return { title, ...(await tried(client, kind, setting, signal)) };
  } catch (error) {
    signal.throwIfAborted();
    const reason = reasonOf(error);
    if (error instanceof CannotInstall) {
      console.log(`SKIPPED: ${title}: ${reason}`);
      return { title, outcomes: SCENARIOS.map(() => 'skipped'), failures: new Map() };
    }
    return { title, outcomes: SCENARIOS.map(() => 'FAILED'), failures: new Map([[reason, ['all']]]) };
  }
}

/** Runs the scenarios one after another. Those that the client has no time left for fail. */
async function tried(
  client: Client,
  kind: ClientKind,
  { upstreams, described, signIn }: Setting,
  signal: AbortSignal,
): Promise<Omit<Column, 'title'>> {
  const outcomes: Outcome[] = [];
  const failures = new Map<string, string[]>();
  const bounded = AbortSignal.any([signal, AbortSignal.timeout(CLIENT_TIMEOUT_MS)]);
  for (const scenario of SCENARIOS) {
    if (!upstreams.has(scenario.upstream)) {
      outcomes.push('skipped');
      continue;
    }
    try {
      bounded.throwIfAborted();
      const stage = {
        client,
        unlisted: unlistedId(kind, scenario),
        described,
        signIn: (authUrl: string) => signIn(authUrl, userOf(kind)),
      };
      await unlessAborted(bounded, scenario.run(stage));
      outcomes.push('passed');
    } catch (error) {
      signal.throwIfAborted();
      outcomes.push('FAILED');
      const reason = reasonOf(error);
      failures.set(reason, [...(failures.get(reason) ?? []), titleOf(scenario)]);
    }
  }
  return { outcomes, failures };
}

/** Runs the program on the page for Python, which uses the REST API. */
async function pageOutcome(setting: Setting, signal: AbortSignal): Promise<Outcome> {
  try {
    await runPythonPage(setting, AbortSignal.any([signal, AbortSignal.timeout(CLIENT_TIMEOUT_MS)]));
    return 'passed';
  } catch (error) {
    signal.throwIfAborted();
    const outcome = error instanceof CannotInstall ? 'skipped' : 'FAILED';
    console.log(`${outcome.toUpperCase()}: ${PYTHON_PAGE}: ${reasonOf(error)}`);
    return outcome;
  }
}

/** How a client fared with the sign-in of Switchboard. */
interface SignIn {
  readonly title: string;
  readonly alone: Outcome;
  /** How it says who it is. */
  readonly registered: string;
  readonly key: Outcome;
}

const signInTitleOf = ({ title }: ClientKind) => `sign-in: ${title}`;

async function signInOf(kind: ClientKind, setting: Setting, signal: AbortSignal): Promise<SignIn> {
  const { title } = kind;
  const user = `signed-in-${SIGN_IN_KINDS.indexOf(kind)}`;
  const limit = () => AbortSignal.any([signal, AbortSignal.timeout(CLIENT_TIMEOUT_MS)]);
  const tryIt = async <T>(what: string, attempt: () => Promise<T>): Promise<readonly [Outcome, T?]> => {
    try {
      return ['passed', await attempt()];
    } catch (error) {
      signal.throwIfAborted();
      const outcome = error instanceof CannotInstall ? 'skipped' : 'FAILED';
      console.log(`${outcome.toUpperCase()}: ${title}: ${what}: ${reasonOf(error)}\n`);
      return [outcome];
    }
  };
  const [outcome, start] = await tryIt('installation', () => kind.install(signal));
  if (!start) return { title, alone: outcome, registered: '', key: outcome };
  const [alone, registered = ''] = await tryIt('the address alone', () =>
    tryAddressAlone(start, setting, user, limit()),
  );
  const [key] = await tryIt('a key', () => tryKey(start, setting, user, limit()));
  return { title, alone, registered, key };
}

interface Tried {
  readonly columns: readonly Column[];
  readonly pages: readonly Outcome[];
  readonly signIns: readonly SignIn[];
}

interface Chosen {
  readonly kinds: readonly ClientKind[];
  readonly withPage: boolean;
  readonly signInKinds: readonly ClientKind[];
}

async function tryClients({ kinds, withPage, signInKinds }: Chosen, signal: AbortSignal): Promise<Tried> {
  const unlisted = new Map<string, Upstream>();
  for (const kind of kinds)
    for (const scenario of SCENARIOS) unlisted.set(unlistedId(kind, scenario), scenario.upstream);
  await using setting = await startSetting(unlisted, signal);
  for (const missing of setting.missing) console.log(`SKIPPED: ${missing}`);
  const columns: Column[] = [];
  for (const kind of kinds) columns.push(await column(kind, setting, signal));
  const pages = withPage ? [await pageOutcome(setting, signal)] : [];
  const signIns: SignIn[] = [];
  for (const kind of signInKinds) signIns.push(await signInOf(kind, setting, signal));
  return { columns, pages, signIns };
}

function rowsOf(columns: readonly Column[]): string[][] {
  const rows = [['', ...columns.map(({ title }) => title)]];
  for (const [at, scenario] of SCENARIOS.entries())
    rows.push([titleOf(scenario), ...columns.map(({ outcomes }) => outcomes[at] ?? '')]);
  return rows;
}

const signInRowsOf = (signIns: readonly SignIn[]): string[][] => [
  ['', 'the address alone', 'known by', 'a key'],
  ...signIns.map(({ title, alone, registered, key }) => [title, alone, registered, key]),
];

/** In Markdown. */
function table(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, at) => Math.max(...rows.map(row => row[at]?.length ?? 0)));
  const lines = rows.map(row => `| ${row.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join(' | ')} |`);
  lines.splice(1, 0, `| ${widths.map(width => '-'.repeat(width)).join(' | ')} |`);
  return lines.join('\n');
}

const words = process.argv.slice(2).map(word => word.toLowerCase());
const isChosen = (title: string) =>
  words.length === 0 || words.some(word => title.toLowerCase().includes(word));
const kinds = CLIENT_KINDS.filter(({ title }) => isChosen(title));
const withPage = isChosen(PYTHON_PAGE);
const signInKinds = SIGN_IN_KINDS.filter(kind => isChosen(signInTitleOf(kind)));
if (kinds.length === 0 && !withPage && signInKinds.length === 0) {
  const titles = [
    ...CLIENT_KINDS.map(({ title }) => title),
    PYTHON_PAGE,
    ...SIGN_IN_KINDS.map(signInTitleOf),
  ];
  throw new Error(`no such client: there are ${titles.join(', ')}`);
}

// Unwinds, so that nothing started here is left behind.
const stopped = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopped.abort());

const { columns, pages, signIns } = await tryClients({ kinds, withPage, signInKinds }, stopped.signal);
for (const { title, failures } of columns)
  for (const [reason, scenarios] of failures) console.log(`${title}: ${scenarios.join('; ')}: ${reason}\n`);
if (columns.length > 0) console.log(table(rowsOf(columns)));
for (const outcome of pages) console.log(`${PYTHON_PAGE}: ${outcome}`);
if (signIns.length > 0) console.log(table(signInRowsOf(signIns)));
const all = [
  ...columns.flatMap(({ outcomes }) => outcomes),
  ...pages,
  ...signIns.flatMap(({ alone, key }) => [alone, key]),
];
const count = (wanted: Outcome) => all.filter(each => each === wanted).length;
console.log(`${count('passed')} passed, ${count('FAILED')} failed`);
const isRequired = process.env['SWITCHBOARD_TEST_REQUIRE_CLIENTS'] === '1';
const areAllSkipped = count('skipped') === all.length;
if (areAllSkipped && isRequired)
  console.log('no client could be tried, and SWITCHBOARD_TEST_REQUIRE_CLIENTS=1');
if (count('FAILED') > 0 || (areAllSkipped ? isRequired : count('passed') === 0)) process.exitCode = 1;
