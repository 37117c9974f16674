/**
 * Searches for a server that can echo a message, and has it echo one.
 * Settings: SWITCHBOARD_URL (http://127.0.0.1:8080), SWITCHBOARD_KEY.
 */
import { Switchboard } from '@switchboard/client';

const switchboard = new Switchboard({
  url: process.env['SWITCHBOARD_URL'] ?? 'http://127.0.0.1:8080',
  apiKey: process.env['SWITCHBOARD_KEY'] ?? '',
});

const { servers, metadata } = await switchboard.search({ query: 'echo a message' });
const server = servers.find(({ tools }) => tools.some(({ name }) => name === 'echo'));
if (!server) throw new Error(`None of the ${servers.length} servers found has a tool named echo.`);
console.log(`${server.name} has ${server.tools.length} tools and a score of ${server.final_score}.`);

const { content, isError } = await switchboard.callTool({
  server_id: server.id,
  name: 'echo',
  arguments: { message: 'hello' },
  // Tells Switchboard that this search led to a call, from which later searches learn.
  query_log_id: metadata.query_log_id,
});
console.log(isError ? 'The tool failed:' : 'The tool answered:', content);
