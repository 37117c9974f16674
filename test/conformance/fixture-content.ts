import {
  completable,
  ResourceTemplate,
  type CallToolResult,
  type McpServer,
} from '@modelcontextprotocol/server';
import { z } from 'zod';

/** One red pixel. */
export const PNG =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';

export const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] });

const say = (words: string) => ({ role: 'user' as const, content: { type: 'text' as const, text: words } });

export function addPrompts(server: McpServer): void {
  server.registerPrompt('test_simple_prompt', { description: 'Without arguments' }, () => ({
    messages: [say('A simple prompt.')],
  }));
  server.registerPrompt(
    'test_prompt_with_arguments',
    {
      description: 'With two arguments',
      argsSchema: z.object({
        arg1: completable(z.string(), value => ['paris', 'park'].filter(word => word.startsWith(value))),
        arg2: z.string(),
      }),
    },
    ({ arg1, arg2 }) => ({ messages: [say(`First ${arg1}, second ${arg2}.`)] }),
  );
  server.registerPrompt(
    'test_prompt_with_embedded_resource',
    { description: 'With a resource', argsSchema: z.object({ resourceUri: z.string() }) },
    ({ resourceUri: uri }) => ({
      messages: [
        {
          role: 'user',
          content: { type: 'resource', resource: { uri, mimeType: 'text/plain', text: 'A resource.' } },
        },
        say('Read that.'),
      ],
    }),
  );
  server.registerPrompt('test_prompt_with_image', { description: 'With an image' }, () => ({
    messages: [
      { role: 'user', content: { type: 'image', data: PNG, mimeType: 'image/png' } },
      say('Look at that.'),
    ],
  }));
}

export function addResources(server: McpServer): void {
  server.registerResource(
    'static-text',
    'test://static-text',
    { description: 'Text', mimeType: 'text/plain' },
    uri => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'A text that never changes.' }] }),
  );
  server.registerResource(
    'static-binary',
    'test://static-binary',
    { description: 'An image', mimeType: 'image/png' },
    uri => ({ contents: [{ uri: uri.href, mimeType: 'image/png', blob: PNG }] }),
  );
  server.registerResource(
    'watched',
    'test://watched-resource',
    { description: 'A resource to subscribe to', mimeType: 'text/plain' },
    uri => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'Watched.' }] }),
  );
  server.registerResource(
    'by-id',
    new ResourceTemplate('test://template/{id}/data', { list: undefined }),
    { description: 'The data of an id', mimeType: 'application/json' },
    (uri, { id }) => ({
      contents: [{ uri: uri.href, mimeType: 'application/json', text: JSON.stringify({ id }) }],
    }),
  );
  // Nothing ever changes, so there is nothing to remember.
  server.server.setRequestHandler('resources/subscribe', () => ({}));
  server.server.setRequestHandler('resources/unsubscribe', () => ({}));
}
