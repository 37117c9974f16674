import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const REVISIONS = ['2025-11-25', '2026-07-28'] as const;
export type Revision = (typeof REVISIONS)[number];

interface Check {
  readonly id: string;
  readonly status: 'SUCCESS' | 'FAILURE' | 'WARNING' | 'SKIPPED' | 'INFO';
  readonly description?: string;
  readonly errorMessage?: string;
}

export interface Scenario {
  readonly checks: readonly Check[];
  /** What the client wrote to stderr; '' for a server scenario. */
  readonly log: string;
}

/** By the scenario's name. */
export type Results = ReadonlyMap<string, Scenario>;

export interface SuiteRun {
  /** A folder of the run's own will be made in it. */
  readonly folder: string;
  readonly signal: AbortSignal;
  readonly env?: Readonly<Record<string, string>>;
}

const MAX_ERROR_CHARS = 500;
/** Long enough to start a Switchboard on a busy machine. */
const CLIENT_TIMEOUT_MS = 90_000;

const SUITE = fileURLToPath(
  new URL('../../node_modules/@modelcontextprotocol/conformance/dist/index.js', import.meta.url),
);

/** All server scenarios of a revision, scored or not. @throws Error when the suite did not run each of them. */
export async function runServerScenarios(url: string, revision: Revision, run: SuiteRun): Promise<Results> {
  const { results, output } = await runSuite(['server', '--url', url, '--requirements', revision], run);
  const expected = Number(/\((\d+) scenarios\)/.exec(output)?.[1]);
  if (results.size !== expected)
    throw new Error(`the suite ran ${results.size} of ${expected} scenarios:\n${output.slice(-2_000)}`);
  return results;
}

/** One client scenario, with `command` as the client: the suite appends its server's URL, and wants the exit code 0. */
export async function runClientScenario(
  command: string,
  scenario: string,
  revision: Revision,
  run: SuiteRun,
): Promise<Scenario> {
  const which = ['--scenario', scenario, '--spec-version', revision];
  // Without force, the suite skips what no revision requires.
  const how = ['--timeout', String(CLIENT_TIMEOUT_MS), '--force'];
  const args = ['client', '--command', command, ...which, ...how];
  const { results, output } = await runSuite(args, run);
  const result = results.get(scenario);
  if (!result) throw new Error(`the suite did not run ${scenario}:\n${output.slice(-2_000)}`);
  await keepPorts(output + JSON.stringify(result.checks));
  // The suite looks at what the client sent; what it got is for the client to judge.
  const ended = /Client (?:exited with code|timed out).*/.exec(output)?.[0];
  if (ended === undefined) return result;
  return {
    ...result,
    checks: [...result.checks, { id: 'client-is-content', status: 'FAILURE', errorMessage: ended }],
  };
}

/**
 * Takes the ports of a scenario's servers until this process ends. Switchboard remembers for an hour what it read at an
 * address, and the system would give some port of an earlier scenario to a later one in about every 20th run.
 */
async function keepPorts(text: string): Promise<void> {
  for (const [, port] of text.matchAll(/\/\/localhost:(\d{1,5})\b/g)) {
    const taken = createServer().listen(Number(port), '127.0.0.1').unref();
    // Another process has it by now, or this one had already.
    await once(taken, 'listening').catch(() => {});
  }
}

/** The authorization server of a client, and how a user goes to the address that the suite prints. */
interface AuthorizationRun {
  readonly issuer: string;
  readonly clientId: string;
  readonly resource: string;
  /** Of the suite's callback. */
  readonly port: number;
  readonly visit: (url: string) => Promise<void>;
}

/** All scenarios for an authorization server. */
export async function runAuthorizationScenarios(
  { issuer, clientId, resource, port, visit }: AuthorizationRun,
  revision: Revision,
  run: SuiteRun,
): Promise<Results> {
  const about = ['--url', issuer, '--client-id', clientId, '--resource', resource, '--port', String(port)];
  let visiting: Promise<void> | undefined;
  const onOutput = (output: string) => {
    const url = /^http\S+\/authorize\?\S+(?=\s)/m.exec(output)?.[0];
    if (url !== undefined) visiting ??= visit(url);
  };
  const args = ['authorization', ...about, '--spec-version', revision];
  const { results, output } = await runSuite(args, run, onOutput);
  await visiting;
  if (results.size === 0) throw new Error(`the suite ran no scenario:\n${output.slice(-2_000)}`);
  return results;
}

/** @param onOutput called with everything written so far */
async function runSuite(
  args: readonly string[],
  { folder, signal, env }: SuiteRun,
  onOutput: (output: string) => void = () => {},
): Promise<{ results: Results; output: string }> {
  const outputFolder = await mkdtemp(path.join(folder, 'run-'));
  const child = spawn(process.execPath, [SUITE, ...args, '--output-dir', outputFolder], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    signal,
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => onOutput((output += chunk.toString())));
  await once(child, 'close');
  return { results: await readResults(outputFolder, output), output };
}

/** The suite makes a folder for each scenario, named after it and the time, such as `server-ping-2026-11-21T10-09-33-400Z` or `auth/dpop-2026-…`. */
async function readResults(folder: string, output: string): Promise<Results> {
  const results = new Map<string, Scenario>();
  for (const name of await readdir(folder, { recursive: true })) {
    const scenario = /^(?:server-)?(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/.exec(name)?.[1];
    if (scenario === undefined) continue;
    const read = (file: string) => readFile(path.join(folder, name, file), 'utf8');
    const log = await read('stderr.txt').catch(() => '');
    const checks = await read('checks.json').catch(() => JSON.stringify([gaveUp(scenario, output)]));
    results.set(scenario, { checks: JSON.parse(checks), log });
  }
  return results;
}

/** The suite itself threw, most likely at an answer it could not read. */
function gaveUp(scenario: string, output: string): Check {
  const start = output.indexOf(`Failed to run scenario ${scenario}:`);
  const errorMessage = start === -1 ? 'the suite gave up' : output.slice(start, start + MAX_ERROR_CHARS);
  return { id: 'suite-gave-up', status: 'FAILURE', errorMessage };
}
