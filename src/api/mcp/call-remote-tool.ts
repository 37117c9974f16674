import type { CallToolResult, InputRequiredResult } from '@modelcontextprotocol/server';
import type { Caller } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import { asksForInput } from '../../core/proxy/tools.ts';
import { SwitchboardError } from '../../errors.ts';
import { metaOf, toAgentResult } from './content.ts';
import { Conversation } from './input-required.ts';
import { callTimeoutMs, ProgressRelay } from './progress.ts';
import { callOwnTool, isOwnServer, type Reader } from './own-server.ts';
import type { CallContext, CallRemoteToolInput } from './tools.ts';

interface Surroundings {
  readonly core: Core;
  readonly era: 'legacy' | 'modern';
  /** The caller's timeout, in milliseconds. */
  readonly timeoutMs: number | undefined;
  /** Returns whether the client has not yet read earlier messages. */
  readonly isBehind: () => boolean;
  /** The search that led to the call, if known. */
  readonly queryLogId: string | undefined;
  /** true: refuses tools that their server does not mark as read-only. */
  readonly readOnly: boolean;
  /** The tool that a truncated result names for reading on. */
  readonly reader: Reader;
}

/** The token is repeated in each notification. */
const MAX_TOKEN_CHARS = 1_024;

/**
 * Returns the server's own result: its content, structured content and `isError`, with Switchboard's data in `_meta`.
 * @throws ProtocolError for protocol-level errors; SwitchboardError for errors that the model should read
 */
export async function callRemoteTool(
  { core, era, timeoutMs, isBehind, queryLogId, readOnly, reader }: Surroundings,
  caller: Caller,
  call: CallRemoteToolInput,
  context: CallContext,
): Promise<CallToolResult | InputRequiredResult> {
  const { server_id: serverId, tool_name: toolName } = call;
  if (isOwnServer(serverId)) return callOwnTool(core, caller, call, reader);
  const conversation = new Conversation({ sealing: core.identity.sealing, era, caller }, call, context);
  const resume = conversation.resume(context);
  const progress = relayTo(context, isBehind);
  const calling = core.proxy.callToolInteractively(
    { ...caller, timeoutMs: callTimeoutMs(timeoutMs, progress !== undefined) },
    {
      serverId,
      queryLogId,
      name: toolName,
      arguments: call.arguments,
      capabilities: conversation.capabilities,
      ...(readOnly ? { readOnly } : {}),
      ...(resume === undefined ? {} : { resume }),
      ...(progress === undefined ? {} : { onProgress: progress.report.bind(progress) }),
    },
  );
  const result = await (progress === undefined ? calling : withProgress(calling, progress));
  if (asksForInput(result)) return conversation.ask(result);
  const keep = async (whole: string) => (await core.results.keep(caller, whole))?.handle;
  const { content, structuredContent, cut } = await toAgentResult(result, { keep, reader });
  return {
    content,
    ...(structuredContent === undefined ? {} : { structuredContent }),
    ...(result.isError ? { isError: true } : {}),
    _meta: metaOf({ serverId, toolName, cut, upstream: result['_meta'] }),
  };
}

/** Settles like the call, once the last progress has been sent. */
async function withProgress<T>(calling: Promise<T>, relay: ProgressRelay): Promise<T> {
  await using _relay = relay;
  return await calling;
}

/** Returns undefined if the client has not requested progress. @throws SwitchboardError `invalid_request` for an overlong token */
function relayTo({ mcpReq }: CallContext, isBehind: () => boolean): ProgressRelay | undefined {
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
