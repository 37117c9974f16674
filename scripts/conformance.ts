/**
 * `npm run conformance [-- PART…]`: the official MCP conformance suite, in four parts (all of them by default).
 *   direct   against a fixture server of our own, which offers what the suite asks for
 *   through  against the same server through `/mcp/{server_id}`: every check must end as it does directly
 *   face     against Switchboard's own server, `/mcp`
 *   client   with Switchboard as the client, over REST
 * Prints a table, and fails when anything ends otherwise than conformance/expected.ts says.
 */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { startFixture } from '../test/conformance/fixture.ts';
import { serve, temporaryFolder } from '../test/support/program.ts';
import { EXPECTED_OF_CLIENT, EXPECTED_OF_FACE, EXPECTED_OF_FIXTURE } from './conformance/expected.ts';
import { startRelay } from './conformance/relay.ts';
import { compared, judged, table, type Row } from './conformance/report.ts';
import { REVISIONS, runClientScenario, runServerScenarios, type Scenario } from './conformance/suite.ts';

const PARTS = ['direct', 'through', 'face', 'client'];
const KEY = 'the-key-of-the-conformance-run-32-chars';
/** The suite splits it at spaces, which a relative path is less likely to have. */
const DRIVER = `${path.relative('', process.execPath)} test/conformance/driver.ts`;

/** Not among them: elicitation-sep1034-client-defaults, as a REST caller has no form to fill in, and auth/*, as end users sign in to identity providers that operators configure. */
const CLIENT_SCENARIOS = {
  '2025-11-25': ['initialize', 'tools_call', 'sse-retry', 'json-schema-2020-12-preservation'],
  '2026-07-28': [
    'tools_call',
    'request-metadata',
    'sep-2322-client-request-state',
    'http-standard-headers',
    'http-custom-headers',
    'http-invalid-tool-headers',
    'json-schema-ref-no-deref',
    'json-schema-2020-12-preservation',
  ],
} as const;

/** @returns what came of each run, as rows of the table */
async function conformance(parts: ReadonlySet<string>, signal: AbortSignal): Promise<Row[]> {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(temporaryFolder()).path;
  const fixture = opened.use(await startFixture());
  const catalogue = path.join(folder, 'catalogue.jsonl');
  const entry = {
    id: 'fixture',
    name: 'Fixture',
    description: 'All the suite asks for',
    remote_url: fixture.url,
  };
  await writeFile(catalogue, JSON.stringify(entry));
  const dataDir = path.join(folder, 'data');
  const switchboard = opened.use(
    await serve({
      SWITCHBOARD_DATA_DIR: dataDir,
      SWITCHBOARD_CATALOGUE: catalogue,
      SWITCHBOARD_API_KEY: KEY,
      SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
      SWITCHBOARD_RATE_LIMIT: 'off',
    }),
  );
  await switchboard.ready();
  const { origin } = opened.use(await startRelay(switchboard.url, KEY));

  const rows: Row[] = [];
  const run = { folder, signal };
  for (const revision of REVISIONS) {
    if (parts.has('direct') || parts.has('through')) {
      const direct = await runServerScenarios(fixture.url, revision, run);
      rows.push(judged('direct', revision, direct, EXPECTED_OF_FIXTURE[revision]));
      if (parts.has('through')) {
        const through = await runServerScenarios(`${origin}/mcp/fixture`, revision, run);
        rows.push(compared('through', revision, through, direct));
      }
    }
    if (parts.has('face')) {
      const face = await runServerScenarios(`${origin}/mcp`, revision, run);
      rows.push(judged('face', revision, face, EXPECTED_OF_FACE[revision]));
    }
    if (parts.has('client')) {
      const env = {
        SWITCHBOARD_URL: switchboard.url,
        SWITCHBOARD_API_KEY: KEY,
        SWITCHBOARD_SOCKET: path.join(dataDir, 'control.sock'),
      };
      const client = new Map<string, Scenario>();
      for (const scenario of CLIENT_SCENARIOS[revision])
        client.set(scenario, await runClientScenario(DRIVER, scenario, revision, { ...run, env }));
      rows.push(judged('client', revision, client, EXPECTED_OF_CLIENT[revision]));
    }
  }
  return rows;
}

const chosen = new Set(process.argv.length > 2 ? process.argv.slice(2) : PARTS);
const unknown = [...chosen].find(part => !PARTS.includes(part));
if (unknown !== undefined) throw new Error(`no part ${unknown}: there are ${PARTS.join(', ')}`);

// Unwinds, so that nothing started here is left behind.
const stopped = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopped.abort());

const rows = await conformance(chosen, stopped.signal);
for (const { run, revision, unexpected } of rows)
  for (const line of unexpected) console.log(`${run} ${revision}: ${line}`);
console.log(table(rows));
if (rows.some(({ unexpected }) => unexpected.length > 0)) process.exitCode = 1;
