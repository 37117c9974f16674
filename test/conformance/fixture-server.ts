import { setTimeout as delay } from 'node:timers/promises';
import { createRequestStateCodec, fromJsonSchema, McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';
import schema202012 from './schema-2020-12.json' with { type: 'json' };
import { addElicitationTools, addInputRequired, type State } from './fixture-input.ts';
import { addPrompts, addResources, PNG, text } from './fixture-content.ts';

export interface Changes {
  /** Tells the clients that listen for it; nothing has changed. */
  readonly onToolsChanged: () => void;
  readonly onPromptsChanged: () => void;
}

/** How long a tool waits between two notifications. The suite wants to see each, and `/mcp` passes on ten a second at most. */
const STEP_MS = 150;
/** The shortest sound file: a WAV header and no samples. */
const WAV = Buffer.from(
  '524946462400000057415645666d74201000000001000100401f0000401f0000010008006461746100000000',
  'hex',
);

const codec = createRequestStateCodec<State>({ key: crypto.getRandomValues(new Uint8Array(32)) });

/** One server with everything the suite's server scenarios ask for by name, for one request or one session. */
export function buildServer(changes: Changes): McpServer {
  const server = new McpServer(
    { name: 'conformance-fixture', version: '1.0.0' },
    {
      capabilities: {
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { subscribe: true },
        logging: {},
        completions: {},
      },
      cacheHints: { 'tools/list': { ttlMs: 60_000, cacheScope: 'public' } },
      requestState: { verify: codec.verify },
    },
  );
  addContentTools(server);
  addWorkingTools(server);
  addSchemaTools(server);
  addChangeTools(server, changes);
  addElicitationTools(server);
  addInputRequired(server, codec);
  addPrompts(server);
  addResources(server);
  return server;
}

const image = { type: 'image' as const, data: PNG, mimeType: 'image/png' };

function addContentTools(server: McpServer): void {
  server.registerTool('test_simple_text', { description: 'Answers with text' }, () => text('Plain text.'));
  server.registerTool('test_image_content', { description: 'Answers with an image' }, () => ({
    content: [image],
  }));
  server.registerTool('test_audio_content', { description: 'Answers with a sound' }, () => ({
    content: [{ type: 'audio', data: WAV.toString('base64'), mimeType: 'audio/wav' }],
  }));
  server.registerTool('test_embedded_resource', { description: 'Answers with a resource' }, () => ({
    content: [
      {
        type: 'resource',
        resource: { uri: 'test://embedded', mimeType: 'text/plain', text: 'An embedded resource.' },
      },
    ],
  }));
  server.registerTool(
    'test_multiple_content_types',
    { description: 'Answers with text, an image and a resource' },
    () => ({
      content: [
        { type: 'text', text: 'Of each kind one:' },
        image,
        {
          type: 'resource',
          resource: { uri: 'test://mixed', mimeType: 'application/json', text: '{"kind":"mixed"}' },
        },
      ],
    }),
  );
  server.registerTool('test_error_handling', { description: 'Fails' }, () => ({
    ...text('This tool always fails.'),
    isError: true,
  }));
}

/** Tools that say something before they answer. */
function addWorkingTools(server: McpServer): void {
  server.registerTool('test_tool_with_logging', { description: 'Logs three times' }, async context => {
    for (const message of ['started', 'working', 'done']) {
      await context.mcpReq.log('info', message);
      await delay(STEP_MS);
    }
    return text('Logged three times.');
  });
  server.registerTool('test_logging_tool', { description: 'Logs once' }, async context => {
    await context.mcpReq.log('info', 'called');
    return text('Logged once.');
  });
  server.registerTool('test_tool_with_progress', { description: 'Reports progress' }, async context => {
    const progressToken = context.mcpReq._meta?.progressToken;
    for (const progress of [0, 50, 100]) {
      if (progressToken !== undefined) {
        await context.mcpReq.notify({
          method: 'notifications/progress',
          params: { progressToken, progress, total: 100 },
        });
      }
      await delay(STEP_MS);
    }
    return text('Reported three times.');
  });
  server.registerTool(
    'test_reconnection',
    { description: 'Cuts the stream it answers on' },
    async context => {
      context.http?.closeSSE?.();
      await delay(STEP_MS);
      return text('You came back.');
    },
  );
}

/** Schemas that must reach the client as they are. */
function addSchemaTools(server: McpServer): void {
  server.registerTool(
    'json_schema_2020_12_tool',
    {
      description: 'Has a schema with keywords of JSON Schema 2020-12',
      inputSchema: fromJsonSchema(schema202012),
    },
    () => text('Valid.'),
  );
  server.registerTool(
    'test_x_mcp_header',
    {
      description: 'Wants an argument repeated in a header',
      inputSchema: z.object({ region: z.string().meta({ 'x-mcp-header': 'Region' }) }),
    },
    ({ region }) => text(`In ${region}.`),
  );
}

function addChangeTools(server: McpServer, { onToolsChanged, onPromptsChanged }: Changes): void {
  server.registerTool('test_trigger_tool_change', { description: 'Says that the tools changed' }, () => {
    onToolsChanged();
    return text('Told.');
  });
  server.registerTool('test_trigger_prompt_change', { description: 'Says that the prompts changed' }, () => {
    onPromptsChanged();
    return text('Told.');
  });
}
