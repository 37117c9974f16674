/**
 * `npm run bench:tokens [-- --limit 5] [--data FOLDER --set NAME]`: how many tokens of an agent's context an answer to
 * `search_servers` takes, and whether the tool that does the job is in it. Twenty everyday requests to the shipped catalogue, or 300
 * requests of a query set to its own; tokens of o200k_base.
 */
import path from 'node:path';
import { parseArgs } from 'node:util';
import { Tiktoken } from 'js-tiktoken/lite';
import o200kBase from 'js-tiktoken/ranks/o200k_base';
import { connectV2 } from '../test/support/mcp-clients.ts';
import { serve, temporaryFolder } from '../test/support/program.ts';
import { mean } from './measures.ts';
import { readQueries } from './query-sets.ts';

/** A request, and the tools that do it, as `server id/tool name`. */
const REQUESTS: readonly (readonly [request: string, ...fitting: RegExp[]])[] = [
  [
    'create an issue in our bug tracker',
    /linear\/create_issue|createJiraIssue|github.*\/(create_issue|issue_write)/,
  ],
  [
    'send an invoice to a customer',
    /paypal.*\/(create|send)_invoice|stripe.*\/(create_invoice|finalize_invoice)/,
  ],
  ['what will the weather be in Lisbon tomorrow', /lookup_weather|weather.*\/get_.*(weather|forecast)/],
  ['run a SQL query on my Postgres database', /neon\/run_sql|supabase.*\/execute_(sql|query)/],
  ['post a message in a Slack channel', /slack.*\/slack_(post|send)_message/],
  ['find places to eat near the office', /google-maps\/search_places|brave_local_search/],
  ['add a task to my to-do list', /todoist.*\/add-tasks|cozi.*\/add_item|asana_create_task/],
  [
    'convert 200 dollars to euros',
    /frankfurter.*\/convert_currency|frankfurter.*\/get_latest_exchange_rates/,
  ],
  ['search for scientific papers about protein folding', /paper-search.*\/search/],
  [
    'look up the documentation of a JavaScript library',
    /context7.*\/(get-library-docs|resolve-library-id)|ref_search_documentation/,
  ],
  [
    'read the text of a web page',
    /fetch\/fetch_url|ref_read_url|markdownify|UrlContentExtractor|oxylabs.*\/ai_scraper/,
  ],
  [
    'search the web for today’s news',
    /brave_(news|web)_search|web-scout.*\/DuckDuckGoWebSearch|perplexity.*\/search|searchscraper/,
  ],
  ['get the latest errors of our production app', /sentry\/search_(events|issues)|raygun.*\/.*error/],
  ['find a page in our Notion workspace', /notion.*\/search_pages/],
  ['draw a flow chart', /mermaid.*\/(generate|validate_and_render)_mermaid_diagram/],
  ['get the transcript of a YouTube video', /youtube\/getTranscripts/],
  ['what is the price of bitcoin right now', /crypto-price\/get-crypto-price|get_prices_current/],
  ['open a pull request on GitHub', /github.*\/(create_pull_request|create_pr)/],
  ['clinical trials for diabetes that recruit now', /clintrials.*\/search_trials/],
  [
    'deploy a web service and look at its logs',
    /render.*\/mcp_render_(create_web_service|list_logs|list_services)/,
  ],
];

const { values: options } = parseArgs({
  options: { limit: { type: 'string', default: '5' }, data: { type: 'string' }, set: { type: 'string' } },
});
const limit = Number(options.limit);
if (!Number.isInteger(limit) || limit < 1)
  throw new Error(`--limit ${options.limit}: must be a whole number, 1 or more`);
if ((options.data === undefined) !== (options.set === undefined))
  throw new Error('--data FOLDER and --set NAME go together: give both or neither');
const MAX_QUERIES = 300;

interface Task {
  readonly query: string;
  readonly isFitting: (tool: string) => boolean;
}

/** The requests with what does them, and the catalogue they go to; undefined: the shipped one. */
async function load(): Promise<{ tasks: Task[]; catalogue: string | undefined }> {
  const { data, set } = options;
  if (data === undefined || set === undefined) {
    const tasks = REQUESTS.map(([query, ...fitting]) => ({
      query,
      isFitting: (tool: string) => fitting.some(pattern => pattern.test(tool)),
    }));
    return { tasks, catalogue: undefined };
  }
  const all = (await readQueries(path.join(data, `${set}.queries.jsonl`))).filter(
    ({ relevant_tools: tools }) => tools.length > 0,
  );
  const step = Math.max(1, Math.floor(all.length / MAX_QUERIES));
  const chosen = all.filter((_query, at) => at % step === 0).slice(0, MAX_QUERIES);
  const tasks = chosen.map(({ query, relevant_tools: tools }) => {
    const names = new Set(tools.map(({ server, tool }) => `${server}/${tool}`));
    return { query, isFitting: (tool: string) => names.has(tool) };
  });
  return { tasks, catalogue: path.join(data, `${set}.corpus.jsonl`) };
}

const encoder = new Tiktoken(o200kBase);
const KEY = 'the-key-of-the-token-bench-of-32-chars';

await using folder = temporaryFolder();
const { tasks, catalogue } = await load();
await using switchboard = await serve({
  SWITCHBOARD_DATA_DIR: folder.path,
  SWITCHBOARD_API_KEY: KEY,
  SWITCHBOARD_RATE_LIMIT: 'off',
  ...(catalogue === undefined ? {} : { SWITCHBOARD_CATALOGUE: path.resolve(catalogue) }),
});
await switchboard.ready();

await using client = await connectV2({ url: switchboard.url, key: KEY }, 'legacy');

const tokensIn = (text: string) => encoder.encode(text).length;
const rows: { tokens: number; hasTool: boolean }[] = [];
for (const { query, isFitting } of tasks) {
  const { content, isError = false } = await client.call('search_servers', { query, limit });
  const shown = content.map(({ text }) => text).join('\n');
  if (isError) throw new Error(`${query}: ${shown}`);
  const { servers } = JSON.parse(shown);
  const tools = servers.flatMap(({ id, tools: its }: any) => its.map(({ name }: any) => `${id}/${name}`));
  const hasTool = tools.some(isFitting);
  rows.push({ tokens: tokensIn(shown), hasTool });
  if (catalogue === undefined)
    console.log(
      `${String(tokensIn(shown)).padStart(5)}  ${String(tools.length).padStart(2)} tools  ${hasTool ? 'shown' : '  -  '}  ${query}`,
    );
}
const sorted = rows.map(({ tokens }) => tokens).sort((a, b) => a - b);
const middle = sorted.slice(Math.ceil(sorted.length / 2) - 1, Math.floor(sorted.length / 2) + 1);
console.log(
  `median ${mean(middle)}, mean ${Math.round(mean(sorted))}, most ${sorted.at(-1)} tokens; the right tool shown ${rows.filter(({ hasTool }) => hasTool).length} of ${rows.length}`,
);
const tools = await client.tools();
const seen = tools.map(({ name, description, inputSchema }) =>
  tokensIn(JSON.stringify({ name, description, inputSchema })),
);
console.log(
  `tools as a model sees them: ${seen.join(' + ')} tokens; whole tools/list ${tokensIn(JSON.stringify(tools))}`,
);
