import {
  acceptedContent,
  CLIENT_CAPABILITIES_META_KEY,
  inputRequired,
  inputResponse,
  type ElicitRequestFormParams,
  type McpServer,
  type RequestStateCodec,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import { text } from './fixture-content.ts';

/** What a tool remembers between two rounds; it travels signed, through the client. */
export interface State {
  readonly step: number;
}

const name = z.object({ name: z.string() });
const capabilities = z.object({ sampling: z.object().optional(), elicitation: z.object().optional() });
const consent = z.object({ ok: z.boolean() });

const ask = (message: string, requestedSchema: z.ZodObject) =>
  inputRequired.elicit({ message, requestedSchema });
const sample = (question: string) =>
  inputRequired.createMessage({
    messages: [{ role: 'user', content: { type: 'text', text: question } }],
    maxTokens: 100,
  });

/** Tools that ask the client while they run: revisions up to 2025-11-25. */
export function addElicitationTools(server: McpServer): void {
  server.registerTool(
    'test_sampling',
    { description: 'Samples a prompt', inputSchema: z.object({ prompt: z.string() }) },
    async ({ prompt }, context) => {
      const { content } = await context.mcpReq.requestSampling(
        { messages: [{ role: 'user', content: { type: 'text', text: prompt } }], maxTokens: 100 },
        // On the stream of the call itself: a client need not have opened another.
        { relatedRequestId: context.mcpReq.id },
      );
      return text(`The model said ${JSON.stringify(content)}`);
    },
  );
  const addElicitation = (
    tool: string,
    description: string,
    properties: ElicitRequestFormParams['requestedSchema']['properties'],
  ) =>
    server.registerTool(
      tool,
      { description, inputSchema: z.object({ message: z.string().default('Please fill in the form.') }) },
      async ({ message }, context) => {
        const answer = await context.mcpReq.elicitInput({
          message,
          requestedSchema: { type: 'object', properties },
        });
        return text(`The user did ${answer.action}: ${JSON.stringify(answer.content)}`);
      },
    );
  addElicitation('test_elicitation', 'Asks for a name and an address', {
    username: { type: 'string', description: 'A user name' },
    email: { type: 'string', description: 'An e-mail address' },
  });
  addElicitation('test_elicitation_sep1034_defaults', 'Asks with a default for each type', {
    name: { type: 'string', default: 'John Doe' },
    age: { type: 'integer', default: 30 },
    score: { type: 'number', default: 95.5 },
    status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
    verified: { type: 'boolean', default: true },
  });
  const titled = ['value1', 'value2', 'value3'].map(value => ({ const: value, title: `Choice ${value}` }));
  addElicitation('test_elicitation_sep1330_enums', 'Asks with each form of choice', {
    untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] },
    titledSingle: { type: 'string', oneOf: titled },
    legacyEnum: { type: 'string', enum: ['opt1', 'opt2'], enumNames: ['Option one', 'Option two'] },
    untitledMulti: { type: 'array', items: { type: 'string', enum: ['option1', 'option2', 'option3'] } },
    titledMulti: { type: 'array', items: { anyOf: titled } },
  });
}

/** Tools, and a prompt, that need another round: revision 2026-07-28. */
export function addInputRequired(server: McpServer, codec: RequestStateCodec<State>): void {
  const tool = (
    suffix: string,
    description: string,
    work: (context: ServerContext) => Round | Promise<Round>,
  ) => server.registerTool(`test_input_required_result_${suffix}`, { description }, work);

  tool('elicitation', 'Asks for a name', ({ mcpReq }) => {
    const user = acceptedContent(mcpReq.inputResponses, 'user_name', name);
    return user
      ? text(`Hello, ${user.name}!`)
      : inputRequired({ inputRequests: { user_name: ask('What is your name?', name) } });
  });
  tool('sampling', 'Asks a model', ({ mcpReq }) => {
    const answer = inputResponse(mcpReq.inputResponses, 'capital_question');
    return answer.kind === 'sampling'
      ? text(`The model said ${JSON.stringify(answer.result.content)}`)
      : inputRequired({ inputRequests: { capital_question: sample('What is the capital of France?') } });
  });
  tool('list_roots', 'Asks for the roots', ({ mcpReq }) => {
    const answer = inputResponse(mcpReq.inputResponses, 'client_roots');
    return answer.kind === 'roots'
      ? text(answer.roots.map(root => root.uri).join(' '))
      : inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } });
  });
  for (const suffix of ['request_state', 'tampered_state']) {
    tool(suffix, 'Remembers what it asked', async ({ mcpReq }) =>
      mcpReq.requestState<State>() && acceptedContent(mcpReq.inputResponses, 'confirm', consent)
        ? text('state-ok')
        : inputRequired({
            inputRequests: { confirm: ask('Please confirm', consent) },
            requestState: await codec.mint({ step: 1 }),
          }),
    );
  }
  tool('multiple_inputs', 'Asks for three things at once', async ({ mcpReq }) => {
    const { inputResponses } = mcpReq;
    const kinds = ['user_name', 'greeting', 'client_roots'].map(
      key => inputResponse(inputResponses, key).kind,
    );
    if (kinds.every(kind => kind !== 'missing')) return text(`Answered: ${kinds.join(', ')}`);
    return inputRequired({
      inputRequests: {
        user_name: ask('What is your name?', name),
        greeting: sample('Make up a greeting'),
        client_roots: inputRequired.listRoots(),
      },
      requestState: await codec.mint({ step: 1 }),
    });
  });
  tool('multi_round', 'Asks twice', async ({ mcpReq }) => {
    const { step } = mcpReq.requestState<State>() ?? { step: 0 };
    if (step === 2) return text('Both answered.');
    const key = `step${step + 1}`;
    return inputRequired({
      inputRequests: {
        [key]: ask(`Question ${step + 1}`, step === 0 ? name : z.object({ color: z.string() })),
      },
      requestState: await codec.mint({ step: step + 1 }),
    });
  });
  tool('capabilities', 'Asks only for what the client can do', ({ mcpReq }) => {
    // The SDK's type of the envelope names no keys.
    const envelope: Readonly<Record<string, unknown>> = mcpReq.envelope ?? {};
    const declared = capabilities.parse(envelope[CLIENT_CAPABILITIES_META_KEY]);
    return inputRequired({
      inputRequests: {
        ...(declared.sampling ? { question: sample('What is the capital of France?') } : {}),
        ...(declared.elicitation ? { user_name: ask('What is your name?', name) } : {}),
      },
    });
  });
  // The SDK answers -32021 for a client that has not declared that it can sample.
  server.registerTool('test_missing_capability', { description: 'Wants to sample' }, () =>
    inputRequired({ inputRequests: { question: sample('What is the capital of France?') } }),
  );
  server.registerTool('test_streaming_elicitation', { description: 'Asks for consent' }, () =>
    inputRequired({ inputRequests: { confirm: ask('Please confirm', consent) } }),
  );
  server.registerPrompt(
    'test_input_required_result_prompt',
    { description: 'Asks for its context' },
    ({ mcpReq }) => {
      const schema = z.object({ context: z.string() });
      const answer = acceptedContent(mcpReq.inputResponses, 'user_context', schema);
      return answer
        ? { messages: [{ role: 'user', content: { type: 'text', text: answer.context } }] }
        : inputRequired({ inputRequests: { user_context: ask('In which context?', schema) } });
    },
  );
}

type Round = ReturnType<typeof text> | ReturnType<typeof inputRequired>;
