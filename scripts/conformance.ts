/**
 * `npm run conformance [-- PART…]`: the official MCP conformance suite, in eight parts (all of them by default).
 *   direct   against a fixture server of our own, which offers what the suite asks for
 *   through  against the same server through `/mcp/{server_id}`: every check must end as it does directly
 *   face     against Switchboard's own server, `/mcp`
 *   token    against `/mcp` with an access token of Switchboard's own sign-in: every check must end as it does with a key
 *   sign-in  against the authorization server of that sign-in
 *   relayed  against `/mcp` again, with each of the suite's tool calls made with `call_remote_tool`
 *   client   with Switchboard as the client, over REST
 *   extensions  the same, with extensions of authorization that no revision requires
 * Prints a table, and fails when anything ends otherwise than conformance/expected.ts says. A run of all parts fails also
 * when docs/conformance.md has another table.
 */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { startFixture } from '../test/conformance/fixture.ts';
import { linksBy, mcpSignIn, type McpSignIn } from '../test/support/mcp-sign-in.ts';
import { freePort } from '../test/support/postgres-server.ts';
import { serve, temporaryFolder } from '../test/support/program.ts';
import {
  CONTENT_SCENARIOS,
  INPUT_SCENARIOS,
  EXPECTED_OF_CLIENT,
  EXPECTED_OF_EXTENSIONS,
  EXPECTED_OF_FACE,
  EXPECTED_OF_FIXTURE,
  EXPECTED_OF_RELAYED,
} from './conformance/expected.ts';
import { callingRemoteTools, startRelay } from './conformance/relay.ts';
import { compared, judged, table, type Row } from './conformance/report.ts';
import {
  REVISIONS,
  runAuthorizationScenarios,
  runClientScenario,
  runServerScenarios,
  type Results,
  type Revision,
  type Scenario,
  type SuiteRun,
} from './conformance/suite.ts';

const PARTS = ['direct', 'through', 'face', 'token', 'sign-in', 'relayed', 'client', 'extensions'];
const KEY = 'the-key-of-the-conformance-run-32-chars';
/** The suite splits it at spaces, which a relative path is less likely to have. */
const DRIVER = `${path.relative('', process.execPath)} test/conformance/driver.ts`;

/** Sign-ins that both revisions require. */
const SIGN_IN_SCENARIOS = [
  'auth/metadata-default',
  'auth/metadata-var1',
  'auth/metadata-var2',
  'auth/metadata-var3',
  'auth/basic-cimd',
  'auth/scope-from-www-authenticate',
  'auth/scope-from-scopes-supported',
  'auth/scope-omitted-when-undefined',
  'auth/scope-step-up',
  'auth/scope-retry-limit',
  'auth/token-endpoint-auth-basic',
  'auth/token-endpoint-auth-post',
  'auth/token-endpoint-auth-none',
  'auth/pre-registration',
] as const;

/** Not among them: elicitation-sep1034-client-defaults, as a REST caller has no form to fill in. */
const CLIENT_SCENARIOS = {
  '2025-11-25': [
    'initialize',
    'tools_call',
    'sse-retry',
    'json-schema-2020-12-preservation',
    ...SIGN_IN_SCENARIOS,
  ],
  '2026-07-28': [
    'tools_call',
    'request-metadata',
    'sep-2322-client-request-state',
    'http-standard-headers',
    'http-custom-headers',
    'http-invalid-tool-headers',
    'json-schema-ref-no-deref',
    'json-schema-2020-12-preservation',
    ...SIGN_IN_SCENARIOS,
    'auth/resource-mismatch',
    'auth/offline-access-scope',
    'auth/offline-access-not-supported',
    'auth/authorization-server-migration',
    'auth/iss-supported',
    'auth/iss-not-advertised',
    'auth/iss-supported-missing',
    'auth/iss-wrong-issuer',
    'auth/iss-unexpected',
    'auth/iss-normalized',
    'auth/metadata-issuer-mismatch',
  ],
} as const;

/** Extensions of authorization, which neither revision requires. */
const EXTENSION_SCENARIOS = [
  'auth/client-credentials-jwt',
  'auth/client-credentials-basic',
  'auth/enterprise-managed-authorization',
  'auth/dpop',
  'auth/dpop-nonce',
  'auth/wif-jwt-bearer',
] as const;

/** Those that call a tool. Not among them: tasks-*, whose extension `/mcp` does not offer. */
const RELAYED_SCENARIOS = {
  '2025-11-25': [
    ...CONTENT_SCENARIOS,
    'tools-call-with-logging',
    'tools-call-sampling',
    'tools-call-elicitation',
    'elicitation-sep1034-defaults',
    'elicitation-sep1330-enums',
    'server-sse-polling',
  ],
  '2026-07-28': [
    ...CONTENT_SCENARIOS,
    'server-stateless',
    'http-header-validation',
    'http-custom-header-server-validation',
    ...INPUT_SCENARIOS,
    'input-required-result-validate-input',
  ],
} as const;

/** Which of the catalogue's servers is of the client's revision too. */
const RELAYED_SERVERS = { '2025-11-25': 'older-fixture', '2026-07-28': 'fixture' } as const;

/** @returns what came of each run, as rows of the table */
async function conformance(parts: ReadonlySet<string>, signal: AbortSignal): Promise<Row[]> {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(temporaryFolder()).path;
  const fixture = opened.use(await startFixture());
  const catalogue = path.join(folder, 'catalogue.jsonl');
  const entries = Object.entries({ fixture: fixture.url, 'older-fixture': fixture.olderUrl }).map(
    ([id, remote_url]) => ({ id, name: id, description: 'All the suite asks for', remote_url }),
  );
  await writeFile(catalogue, entries.map(entry => JSON.stringify(entry)).join('\n'));
  const dataDir = path.join(folder, 'data');
  const port = await freePort();
  const publicUrl = `http://127.0.0.1:${port}`;
  const switchboard = opened.use(
    await serve({
      PORT: String(port),
      PUBLIC_URL: publicUrl,
      SWITCHBOARD_DATA_DIR: dataDir,
      SWITCHBOARD_CATALOGUE: catalogue,
      SWITCHBOARD_API_KEY: KEY,
      SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
      SWITCHBOARD_RATE_LIMIT: 'off',
    }),
  );
  await switchboard.ready();
  const signIn = mcpSignIn({ publicUrl, link: linksBy(publicUrl, KEY) });
  const { origin } = opened.use(await startRelay(switchboard.url, { 'x-api-key': KEY }));

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
    if (parts.has('face') || parts.has('token')) {
      const face = await runServerScenarios(`${origin}/mcp`, revision, run);
      rows.push(judged('face', revision, face, EXPECTED_OF_FACE[revision]));
      if (parts.has('token')) {
        const { access_token: token } = await signIn.tokens();
        await using relay = await startRelay(switchboard.url, { authorization: `Bearer ${token}` });
        const withToken = await runServerScenarios(`${relay.origin}/mcp`, revision, run);
        rows.push(compared('token', revision, withToken, face));
      }
    }
    if (parts.has('sign-in')) {
      const results = await signInScenarios(signIn, revision, run);
      rows.push(judged('sign-in', revision, results, {}));
    }
    if (parts.has('relayed')) {
      const change = callingRemoteTools(RELAYED_SERVERS[revision]);
      await using relay = await startRelay(switchboard.url, { 'x-api-key': KEY }, change);
      // The suite runs one scenario or all of them. All take half the time of a process for each of these.
      const all = await runServerScenarios(`${relay.origin}/mcp`, revision, run);
      const relayed = only(RELAYED_SCENARIOS[revision], all);
      rows.push(judged('relayed', revision, relayed, EXPECTED_OF_RELAYED[revision]));
    }
    const env = {
      SWITCHBOARD_URL: switchboard.url,
      SWITCHBOARD_API_KEY: KEY,
      SWITCHBOARD_SOCKET: path.join(dataDir, 'control.sock'),
    };
    const asClient = async (scenarios: readonly string[]): Promise<Results> => {
      const results = new Map<string, Scenario>();
      for (const scenario of scenarios)
        results.set(scenario, await runClientScenario(DRIVER, scenario, revision, { ...run, env }));
      return results;
    };
    if (parts.has('client')) {
      const client = await asClient(CLIENT_SCENARIOS[revision]);
      rows.push(judged('client', revision, client, EXPECTED_OF_CLIENT[revision]));
    }
    if (parts.has('extensions')) {
      const extensions = await asClient(EXTENSION_SCENARIOS);
      rows.push(judged('extensions', revision, extensions, EXPECTED_OF_EXTENSIONS[revision]));
    }
  }
  return rows;
}

/** Runs the scenarios for an authorization server, with a user who signs in by a link and allows what is asked. */
async function signInScenarios(signIn: McpSignIn, revision: Revision, run: SuiteRun): Promise<Results> {
  const { publicUrl } = signIn;
  const port = await freePort();
  const { json } = await signIn.register({ redirect_uris: [`http://127.0.0.1:${port}/callback`] });
  const visit = async (url: string) => {
    const agent = signIn.browser();
    await fetch(await signIn.answer(agent, await signIn.toConsent(agent, url)));
  };
  const clientId = json.client_id as string;
  const at = { issuer: `${publicUrl}/auth`, clientId, resource: `${publicUrl}/mcp`, port, visit };
  return runAuthorizationScenarios(at, revision, run);
}

/** @throws Error for a scenario the suite does not have. */
const only = (scenarios: readonly string[], results: Results): Results =>
  new Map(
    scenarios.map(scenario => {
      const result = results.get(scenario);
      if (!result) throw new Error(`the suite did not run ${scenario}`);
      return [scenario, result];
    }),
  );

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
const isOutdated =
  chosen.size === PARTS.length && !(await readFile('docs/conformance.md', 'utf8')).includes(table(rows));
if (isOutdated) console.log('docs/conformance.md has another table: copy this one there');
if (isOutdated || rows.some(({ unexpected }) => unexpected.length > 0)) process.exitCode = 1;
