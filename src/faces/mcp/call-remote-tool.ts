import type { CallToolResult, InputRequiredResult, ServerContext } from '@modelcontextprotocol/server';
import type { Caller } from '../../core/caller.ts';
import type { Core } from '../../core/core.ts';
import type { InputRequired, ToolResult } from '../../core/proxy/proxy.ts';
import { SwitchboardError } from '../../errors.ts';
import { parseInput } from '../input.ts';
import { toAgentResult } from './content.ts';
import { urlElicitationOf } from './elicitation.ts';
import { Conversation } from './input-required.ts';
import { callTimeoutMs, ProgressRelay } from './progress.ts';
import { askToSignIn } from './sign-in.ts';
import { callRemoteToolInput, type CallRemoteToolOutput } from './tools.ts';

interface Surroundings {
  readonly core: Core;
  readonly era: 'legacy' | 'modern';
  /** Of the HTTP request. */
  readonly headers: Headers | undefined;
  /** How long the caller says it waits at most, in milliseconds. */
  readonly timeoutMs: number | undefined;
  /** Whether the client has yet to take what was sent to it. */
  readonly isBehind: () => boolean;
}

/** It comes back with each notification. */
const MAX_TOKEN_CHARS = 1_024;

/** @throws ProtocolError for what the protocol wants as an error; SwitchboardError for what the model should read. */
export async function callRemoteTool(
  { core, era, headers, timeoutMs, isBehind }: Surroundings,
  caller: Caller,
  input: unknown,
  context: ServerContext,
): Promise<CallToolResult | InputRequiredResult> {
  const call = parseInput(callRemoteToolInput, input, 'The arguments');
  const { server_id, tool_name } = call;
  const conversation = new Conversation({ sealing: core.identity.sealing, era, caller }, call, context);
  const resume = conversation.resume(context);
  await using progress = relayTo(context, isBehind);
  try {
    const result = await core.proxy.callTool(
      { ...caller, timeoutMs: callTimeoutMs(timeoutMs, progress !== undefined) },
      {
        serverId: server_id,
        queryLogId: call.query_log_id,
        name: tool_name,
        arguments: call.arguments,
        capabilities: conversation.capabilities,
        ...(resume === undefined ? {} : { resume }),
        ...(progress === undefined ? {} : { onProgress: progress.report.bind(progress) }),
      },
    );
    if (asksForInput(result)) return conversation.ask(result);
    const { content, structuredContent } = toAgentResult(result);
    const structured: CallRemoteToolOutput = {
      server_id,
      tool_name,
      is_error: result.isError,
      ...(structuredContent === undefined ? {} : { structured_content: structuredContent }),
    };
    return { content, structuredContent: structured, ...(result.isError ? { isError: true } : {}) };
  } catch (error) {
    if (!(error instanceof SwitchboardError) || error.code !== 'connection_required') throw error;
    return askToSignIn(error, {
      serverId: server_id,
      toolName: tool_name,
      titleOf: provider => core.identity.providers.titleOf(provider),
      elicitation: urlElicitationOf(era, headers, context),
      // With a state of ours, these answer what the server asked.
      inputResponses: resume === undefined ? context.mcpReq.inputResponses : undefined,
    });
  }
}

/** Whatever other fields a server sends with it. */
const asksForInput = (result: ToolResult | InputRequired): result is InputRequired =>
  !Array.isArray(result['content']);

/** Nothing, for a client that has not asked for progress. @throws SwitchboardError `invalid_request` for too long a token. */
function relayTo({ mcpReq }: ServerContext, isBehind: () => boolean): ProgressRelay | undefined {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return undefined;
  if (String(progressToken).length > MAX_TOKEN_CHARS)
    throw new SwitchboardError(
      'invalid_request',
      `progressToken: must have at most ${MAX_TOKEN_CHARS} characters`,
    );
  return new ProgressRelay(
    progress => mcpReq.notify({ method: 'notifications/progress', params: { progressToken, ...progress } }),
    isBehind,
  );
}
