/**
 * What the conformance suite starts for a client scenario: has a running Switchboard (SWITCHBOARD_URL, …_API_KEY, …_SOCKET)
 * call the suite's server, as its operator and its callers would. The suite judges by what arrives at its server.
 */
import { connectAdminSocket } from '../support/admin-socket.ts';
import { Calls, type Target } from './calls.ts';
import { runSignIn } from './signing-in.ts';

interface Tool {
  readonly name: string;
  readonly inputSchema: { readonly properties?: Readonly<Record<string, { readonly type?: string }>> };
}

const { env } = process;
const url = process.argv.at(-1) ?? '';
const scenario = env['MCP_CONFORMANCE_SCENARIO'] ?? '';
const context = JSON.parse(env['MCP_CONFORMANCE_CONTEXT'] ?? '{}');
const target: Target = {
  url: env['SWITCHBOARD_URL'] ?? '',
  key: env['SWITCHBOARD_API_KEY'] ?? '',
  socket: env['SWITCHBOARD_SOCKET'] ?? '',
};
// A server of its own for each: the suite runs each scenario on a port of its own.
const serverId = `${scenario.replace('/', '-')}-${new URL(url).port}`;
const calls = new Calls(target, serverId);

/** Any JSON-RPC request: its result. */
async function request(method: string, params?: object): Promise<any> {
  const { json } = await calls.request(method, params);
  if (!json.result) throw new Error(`${method} failed`);
  return json.result;
}

async function callTool(name: string, args: object): Promise<void> {
  const { json } = await calls.post('tools/call', { name, arguments: args });
  if (!json.content) throw new Error(`${name} failed`);
}

async function addServer(): Promise<void> {
  const admin = connectAdminSocket(target.socket);
  const entry = { id: serverId, name: scenario, description: scenario, remote_url: url };
  const imported = await admin.request('POST', '/catalogue/import', JSON.stringify(entry));
  if (imported.json.imported !== 1) throw new Error(`not added: ${JSON.stringify(imported.json)}`);
  const learned = await admin.request('POST', `/catalogue/${serverId}/tools`);
  if (learned.status !== 200) throw new Error(`no tools: ${JSON.stringify(learned.json)}`);
  await admin.close();
}

/** A value for each property, of its type. */
const argumentsFor = ({ inputSchema: { properties = {} } }: Tool) =>
  Object.fromEntries(
    Object.entries(properties).map(([name, { type }], index) => [name, type === 'number' ? index : 'a-text']),
  );

/** Calls a tool, answers what it asks with consent, and goes on with the call. */
async function withRounds(name: string): Promise<void> {
  const meta = { 'io.modelcontextprotocol/clientCapabilities': { elicitation: {} } };
  const params = { name, arguments: {}, _meta: meta };
  const first = await request('tools/call', params);
  if (first.resultType !== 'input_required') return;
  await request('tools/call', { name: 'test_mrtr_unrelated', arguments: {}, _meta: meta });
  const consent = { action: 'accept', content: { confirmed: true } };
  await request('tools/call', {
    ...params,
    inputResponses: Object.fromEntries(Object.keys(first.inputRequests).map(key => [key, consent])),
    ...('requestState' in first ? { requestState: first.requestState } : {}),
  });
}

/** What a scenario wants beyond calls of its tools. */
const steps: Readonly<Record<string, (tools: readonly Tool[]) => Promise<unknown>>> = {
  async 'http-standard-headers'(tools) {
    for (const tool of tools) await callTool(tool.name, {});
    const { resources } = await request('resources/list');
    for (const { uri } of resources) await request('resources/read', { uri });
    const { prompts } = await request('prompts/list');
    for (const { name } of prompts) await request('prompts/get', { name });
  },
  async 'http-custom-headers'() {
    // One of them has an argument its own schema does not allow, which only a generic call lets through.
    for (const call of context.toolCalls) await request('tools/call', call);
  },
  async 'json-schema-2020-12-preservation'(tools) {
    const schema = tools.find(({ name }) => name === 'json_schema_2020_12_tool')?.inputSchema;
    await callTool('json_schema_echo', { schema });
  },
  async 'json-schema-ref-no-deref'() {
    // Makes the arguments be checked against the schema; the server only lists the tool and refuses the call.
    await calls.post('tools/call', { name: 'lookup_user', arguments: { id: 'a-text', profile: {} } });
  },
  async 'sep-2322-client-request-state'(tools) {
    for (const { name } of tools) await withRounds(name);
  },
};

async function runCalls(): Promise<void> {
  await addServer();
  const { tools } = (await calls.post('tools/list', {})).json as { tools: Tool[] };
  const step = steps[scenario];
  if (step) await step(tools);
  else for (const tool of tools) await callTool(tool.name, argumentsFor(tool));
}

await (scenario.startsWith('auth/')
  ? runSignIn({ name: scenario, serverId, url, context }, target)
  : runCalls());
