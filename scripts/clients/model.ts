import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { listen, readBytes } from '../../test/support/upstreams/http.ts';

export type Json = Readonly<Record<string, any>>;

/** A result of a tool, as a model or an application is given it. */
export interface Given {
  /** Resources and links too, as an agent puts them or as JSON. */
  readonly texts: readonly string[];
  /** In base64. */
  readonly images: readonly string[];
  readonly structured?: unknown;
  /** Whether it is marked as an error; undefined where the wire has no such mark. */
  readonly isError?: boolean;
}

/** The model behind an agent. It makes the calls that it is told to make, and passes on what the agent shows it as their results. */
export interface Model extends AsyncDisposable {
  /** Without a trailing slash. */
  readonly origin: string;
  /** Resolves to all texts of the first request that offers tools of MCP servers: what the model knows before its first call. */
  readonly shown: Promise<string>;
  /** Makes the model call a tool. A tool of Codex is named `namespace/name`. */
  call(tool: string, input: Json): Promise<Given>;
}

interface Turn {
  /** The call's id, without the prefix that the wire gives it. */
  readonly id: string;
  /** Undefined: the model is done. */
  readonly call: { readonly tool: string; readonly input: Json } | undefined;
}

/** How many tokens a text has. Claude Code asks before it decides how much of a long result the model sees. */
const tokensIn = (text: string) => Math.ceil(text.length / 4);

/** Starts a model on 127.0.0.1 that speaks Anthropic's Messages, OpenAI's Responses and Google's Gemini, all streaming. */
export async function startModel(): Promise<Model> {
  const turns: Turn[] = [];
  const waiting = new Map<string, PromiseWithResolvers<Given>>();
  let added = Promise.withResolvers<void>();
  const shown = Promise.withResolvers<string>();

  /** Resolves to the first turn that has no result yet, as soon as there is one. So a request that is repeated is answered alike. */
  async function turnAfter(results: ReadonlyMap<string, Given>): Promise<Turn> {
    for (const [id, given] of results) waiting.get(id)?.resolve(given);
    for (;;) {
      const turn = turns.find(({ id }) => !results.has(id));
      if (turn) return turn;
      await added.promise;
    }
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const text = (await readBytes(request)).toString();
    const { pathname } = new URL(request.url ?? '/', 'http://model');
    const reply = (status: number, body: Json) =>
      void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (pathname.endsWith('/count_tokens')) return reply(200, { input_tokens: tokensIn(text) });
    const wire = WIRES.find(({ path }) => request.method === 'POST' && pathname.endsWith(path));
    if (!wire) return reply(request.method === 'GET' ? 200 : 404, { data: [], models: [] });
    const body = JSON.parse(text);
    // Agents also have titles and summaries written, without the tools of MCP servers.
    const isAside = !wire.toolsOf(body).some(name => name.startsWith('mcp_'));
    if (!isAside) shown.resolve(textsIn(body));
    const turn = isAside ? { id: randomUUID(), call: undefined } : await turnAfter(wire.resultsOf(body));
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const event of wire.eventsOf(turn, body.model))
      response.write(`${wire.isNamed ? `event: ${event['type']}\n` : ''}data: ${JSON.stringify(event)}\n\n`);
    response.end();
  }

  const { origin, ...listening } = await listen((request, response) => {
    answer(request, response).catch((error: unknown) => {
      console.error('model:', error);
      response.destroy();
    });
  });
  return {
    origin,
    shown: shown.promise,
    call(tool, input) {
      const given = Promise.withResolvers<Given>();
      const id = randomUUID().replaceAll('-', '');
      waiting.set(id, given);
      const waking = added;
      added = Promise.withResolvers();
      turns.push({ id, call: { tool, input } });
      waking.resolve();
      return given.promise;
    },
    [Symbol.asyncDispose]: listening[Symbol.asyncDispose],
  };
}

/** All strings in a value of JSON. */
export function textsIn(value: unknown): string {
  if (typeof value === 'string') return value;
  if (typeof value !== 'object' || value === null) return '';
  return Object.values(value).map(textsIn).join('\n');
}

interface Wire {
  /** The end of it. */
  readonly path: string;
  /** Whether its events have names. */
  readonly isNamed: boolean;
  toolsOf(body: Json): readonly string[];
  /** The results of all calls so far, by the id of the call. */
  resultsOf(body: Json): ReadonlyMap<string, Given>;
  eventsOf(turn: Turn, model: string): readonly Json[];
}

const DONE = 'Done.';

/** Claude Code puts the name that it knows a server by before a resource. */
const RESOURCE_FROM = /^\[Resource from \S+ at /;

const messages: Wire = {
  path: '/v1/messages',
  isNamed: true,
  toolsOf: ({ tools = [] }) => tools.map(({ name }: Json) => name),
  resultsOf({ messages: all }) {
    const blocks: Json[] = all.flatMap(({ content }: Json) => (Array.isArray(content) ? content : []));
    const results = blocks.filter(({ type }) => type === 'tool_result');
    return new Map(
      results.map(({ tool_use_id, content = [], is_error = false }) => {
        const parts: Json[] = typeof content === 'string' ? [{ type: 'text', text: content }] : content;
        const given = {
          texts: parts
            .filter(({ type }) => type === 'text')
            .map(({ text }) => text.replace(RESOURCE_FROM, '[Resource at ')),
          images: parts.filter(({ type }) => type === 'image').map(({ source }) => source.data),
          isError: is_error,
        };
        return [tool_use_id.replace('toolu_', ''), given];
      }),
    );
  },
  eventsOf({ id, call }, model) {
    const usage = { input_tokens: 1, output_tokens: 1 };
    const message = { id: `msg_${id}`, type: 'message', role: 'assistant', model, content: [], usage };
    const block = call
      ? { type: 'tool_use', id: `toolu_${id}`, name: call.tool, input: {} }
      : { type: 'text', text: '' };
    const delta = call
      ? { type: 'input_json_delta', partial_json: JSON.stringify(call.input) }
      : { type: 'text_delta', text: DONE };
    const end = { stop_reason: call ? 'tool_use' : 'end_turn', stop_sequence: null };
    return [
      { type: 'message_start', message: { ...message, stop_reason: null, stop_sequence: null } },
      { type: 'content_block_start', index: 0, content_block: block },
      { type: 'content_block_delta', index: 0, delta },
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: end, usage: { output_tokens: 1 } },
      { type: 'message_stop' },
    ];
  },
};

/** Codex puts it before every result. */
const WALL_TIME = /^Wall time: [\d.]+ seconds\nOutput:\n?/;

const responses: Wire = {
  path: '/responses',
  isNamed: true,
  toolsOf: ({ tools = [] }) =>
    tools.flatMap(({ type, name = type, tools: inside }: Json) =>
      type === 'namespace' ? inside.map((tool: Json) => `${name}/${tool['name']}`) : [name],
    ),
  resultsOf({ input }) {
    const outputs: Json[] = input.filter(({ type }: Json) => type === 'function_call_output');
    return new Map(
      outputs.map(({ call_id, output }) => {
        const parts: Json[] = typeof output === 'string' ? [{ type: 'input_text', text: output }] : output;
        const texts: string[] = parts.filter(({ type }) => type === 'input_text').map(({ text }) => text);
        const images = parts.filter(({ type }) => type === 'input_image');
        const given = {
          texts: texts.map(text => text.replace(WALL_TIME, '')).filter(text => text !== ''),
          images: images.map(({ image_url }) => image_url.replace(/^data:[^,]*,/, '')),
        };
        return [call_id.replace('call_', ''), given];
      }),
    );
  },
  eventsOf({ id, call }) {
    const [name = '', namespace] = (call?.tool ?? '').split('/').toReversed();
    const text = { type: 'output_text', text: DONE, annotations: [] };
    const item = call
      ? {
          type: 'function_call',
          id: `fc_${id}`,
          call_id: `call_${id}`,
          name,
          namespace,
          arguments: JSON.stringify(call.input),
        }
      : { type: 'message', id: `msg_${id}`, role: 'assistant', content: [text] };
    const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
    const response = { id: `resp_${id}` };
    return [
      { type: 'response.created', response },
      { type: 'response.output_item.added', output_index: 0, item },
      { type: 'response.output_item.done', output_index: 0, item },
      { type: 'response.completed', response: { ...response, status: 'completed', output: [item], usage } },
    ];
  },
};

const gemini: Wire = {
  path: ':streamGenerateContent',
  isNamed: false,
  toolsOf: ({ tools = [] }) =>
    tools.flatMap(({ functionDeclarations = [] }: Json) =>
      functionDeclarations.map(({ name }: Json) => name),
    ),
  resultsOf({ contents }) {
    const parts: Json[] = contents.flatMap(({ parts: of = [] }: Json) => of);
    const results = parts.flatMap(({ functionResponse }) => functionResponse ?? []);
    return new Map(
      results.map(({ id, response }: Json) => [
        id,
        { texts: [response['output'] ?? textsIn(response)], images: [], isError: 'error' in response },
      ]),
    );
  },
  eventsOf({ id, call }) {
    const part = call ? { functionCall: { id, name: call.tool, args: call.input } } : { text: DONE };
    const usageMetadata = { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 };
    const candidate = { index: 0, content: { role: 'model', parts: [part] }, finishReason: 'STOP' };
    return [{ candidates: [candidate], usageMetadata }];
  },
};

const WIRES = [messages, responses, gemini];
