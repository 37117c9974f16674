/**
 * What the conformance suite starts for a client scenario: has a running Switchboard (SWITCHBOARD_URL, …_API_KEY, …_SOCKET)
 * call the suite's server, as its operator and its callers would. The suite judges by what arrives at its server.
 */
import { connectAdminSocket } from '../support/admin-socket.ts';

interface Tool {
  readonly name: string;
  readonly inputSchema: { readonly properties?: Readonly<Record<string, { readonly type?: string }>> };
}

const { env } = process;
const target = process.argv.at(-1) ?? '';
const scenario = env['MCP_CONFORMANCE_SCENARIO'] ?? '';
// A server of its own for each: the suite runs each scenario on a port of its own.
const serverId = `${scenario}-${new URL(target).port}`;

async function post(path: string, body: object): Promise<any> {
  const response = await fetch(`${env['SWITCHBOARD_URL']}/v1/mcp/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': env['SWITCHBOARD_API_KEY'] ?? '' },
    body: JSON.stringify({ server_id: serverId, ...body }),
    signal: AbortSignal.timeout(20_000),
  });
  const answer = await response.json();
  console.error(
    path,
    JSON.stringify(body).slice(0, 200),
    response.status,
    JSON.stringify(answer).slice(0, 500),
  );
  return answer;
}

/** Any JSON-RPC request: its result. */
async function request(method: string, params?: object): Promise<any> {
  const { result } = await post('call', { method, params });
  if (!result) throw new Error(`${method} failed`);
  return result;
}

async function callTool(name: string, args: object): Promise<void> {
  const { content } = await post('tools/call', { name, arguments: args });
  if (!content) throw new Error(`${name} failed`);
}

async function addServer(): Promise<void> {
  const admin = connectAdminSocket(env['SWITCHBOARD_SOCKET'] ?? '');
  const entry = { id: serverId, name: scenario, description: scenario, remote_url: target };
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
    const { toolCalls } = JSON.parse(env['MCP_CONFORMANCE_CONTEXT'] ?? '{}');
    for (const call of toolCalls) await request('tools/call', call);
  },
  async 'json-schema-2020-12-preservation'(tools) {
    const schema = tools.find(({ name }) => name === 'json_schema_2020_12_tool')?.inputSchema;
    await callTool('json_schema_echo', { schema });
  },
  async 'json-schema-ref-no-deref'() {
    // Makes the arguments be checked against the schema; the server only lists the tool and refuses the call.
    await post('tools/call', { name: 'lookup_user', arguments: { id: 'a-text', profile: {} } });
  },
  async 'sep-2322-client-request-state'(tools) {
    for (const { name } of tools) await withRounds(name);
  },
};

await addServer();
const { tools } = (await post('tools/list', {})) as { tools: Tool[] };
const step = steps[scenario];
if (step) await step(tools);
else for (const tool of tools) await callTool(tool.name, argumentsFor(tool));
