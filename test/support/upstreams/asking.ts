import type { IncomingMessage, ServerResponse } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import {
  createMcpHandler,
  inputRequired,
  McpServer,
  type CallToolResult,
  type InputRequiredResult,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import { Inbox, listen, readBody } from './http.ts';

export interface AskingServer extends AsyncDisposable {
  readonly url: string;
  readonly inbox: Inbox;
}

type Asking = (context: ServerContext['mcpReq']) => CallToolResult | InputRequiredResult;

const text = (words: string): CallToolResult => ({ content: [{ type: 'text', text: words }] });
const form = (message: string) =>
  inputRequired.elicit({
    message,
    requestedSchema: { type: 'object', properties: { answer: { type: 'string' } }, required: ['answer'] },
  });
const answerTo = ({ inputResponses }: ServerContext['mcpReq'], key: string) =>
  (inputResponses?.[key] as { content?: { answer?: string } } | undefined)?.content?.answer;

/** What a tool does with what has come back so far. */
const TOOLS: Readonly<Record<string, Asking>> = {
  // One round. The client's answer stands under the key that Switchboard's own question about a sign-in has, too.
  name: context => {
    const name = answerTo(context, 'sign_in');
    if (name !== undefined) return text(`Hello ${name}, ${context.requestState<string>()}`);
    return inputRequired({ inputRequests: { sign_in: form('Your name?') }, requestState: 'a "state" ü' });
  },
  // Two rounds, the second of which gives back what the first has brought.
  twice: context => {
    const [, first] = /^first (.*)$/.exec(context.requestState<string>() ?? '') ?? [];
    const answer = answerTo(context, 'q');
    if (first !== undefined && answer !== undefined) return text(`${first} and ${answer}`);
    if (answer === undefined) return inputRequired({ inputRequests: { q: form('First?') } });
    return inputRequired({ inputRequests: { q: form('Second?') }, requestState: `first ${answer}` });
  },
  sample: ({ inputResponses }) => {
    if (inputResponses) return text(JSON.stringify(inputResponses['thought']));
    const thought = inputRequired.createMessage({
      messages: [{ role: 'user', content: { type: 'text', text: 'Think.' } }],
      maxTokens: 10,
    });
    return inputRequired({ inputRequests: { thought } });
  },
  roots: ({ inputResponses }) =>
    inputResponses
      ? text(JSON.stringify(inputResponses['roots']))
      : inputRequired({ inputRequests: { roots: inputRequired.listRoots() } }),
  // Asks for nothing but to be called again.
  later: context =>
    context.requestState() === 'later' ? text('done') : inputRequired({ requestState: 'later' }),
};

function buildServer(): McpServer {
  const server = new McpServer({ name: 'asking', version: '1.0.0' });
  const inputSchema = z.looseObject({});
  for (const [name, ask] of Object.entries(TOOLS))
    server.registerTool(name, { inputSchema }, (_args, { mcpReq }) => ask(mcpReq));
  server.registerTool('steps', { inputSchema }, async (_args, { mcpReq }) => {
    const progressToken = mcpReq._meta?.progressToken;
    if (progressToken === undefined) return text('nobody asked');
    for (const [at, message] of ['one', 'two', 'three'].entries()) {
      const params = { progressToken, progress: at + 1, total: 3, message };
      await mcpReq.notify({ method: 'notifications/progress', params });
    }
    return text('told');
  });
  return server;
}

/** A server built with SDK v2, both eras, whose tools ask for input (name, twice, sample, roots, later) and report progress (steps). */
export async function startAskingServer(
  legacy: 'stateless' | 'reject' = 'reject',
  port = 0,
): Promise<AskingServer> {
  const inbox = new Inbox();
  const handler = createMcpHandler(() => buildServer(), { legacy });
  const answer = toNodeHandler(handler);
  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    const { text: body, message } = await readBody(request);
    inbox.add(request, message);
    // @ts-expect-error the SDK's types do not allow for exactOptionalPropertyTypes
    await answer(request, response, body === '' ? undefined : JSON.parse(body));
  };
  const listening = await listen((request, response) => void serve(request, response), port);
  return {
    url: `${listening.origin}/mcp`,
    inbox,
    async [Symbol.asyncDispose]() {
      await handler.close();
      await listening[Symbol.asyncDispose]();
    },
  };
}
