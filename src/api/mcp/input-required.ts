import { createHash } from 'node:crypto';
import {
  CLIENT_CAPABILITIES_META_KEY,
  ProtocolError,
  ProtocolErrorCode,
  type CallToolResult,
  type InputRequiredResult,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import type { Caller } from '../../core/access/caller.ts';
import { sanitise } from '../../platform/sanitize.ts';
import type { InputRequired } from '../../core/proxy/proxy.ts';
import type { Sealing } from '../../platform/sealing.ts';
import { SwitchboardError } from '../../errors.ts';
import { metaOf } from './content.ts';
import type { CallContext } from './tools.ts';

/** How long a user has to reply to a tool's request for input, in milliseconds. */
const TTL_MS = 10 * 60_000;
const PURPOSE = 'mcp-request-state';
/** Limits the JSON of a server's input requests and its state together. */
const MAX_CHARS = 1_000_000;
const MAX_NAMED = 10;

const ELSEWHERE =
  'POST /v1/mcp/call with what can be answered in params._meta["io.modelcontextprotocol/clientCapabilities"], then again with inputResponses and requestState in params';

/** Explains what to do if a tool needs input and the client cannot be asked, as in old revisions. */
export const cannotBeAsked = (era: 'legacy' | 'modern'): string =>
  'If the tool accepts the missing input as arguments, call it again with them. ' +
  (era === 'modern'
    ? `Otherwise use a client that declares the capability, or ${ELSEWHERE}.`
    : 'The tool asks the user for input, which the protocol revision of this connection cannot relay. ' +
      'Otherwise use a client of revision 2026-07-28 that declares the capability, or connect directly at /mcp/{server_id}, ' +
      `or ${ELSEWHERE}.`);

const record = z.record(z.string(), z.unknown());
/** The capabilities for input that are passed on to servers. */
const capabilitiesSchema = z.object({
  elicitation: record.optional(),
  sampling: record.optional(),
  roots: record.optional(),
});
type Capabilities = z.output<typeof capabilitiesSchema>;
const envelope = z.object({ [CLIENT_CAPABILITIES_META_KEY]: capabilitiesSchema });

const requestSchema = z.looseObject({ method: z.string(), params: z.looseObject({}).optional() });
type InputRequest = z.output<typeof requestSchema>;
const askedSchema = z
  .object({
    inputRequests: z.record(z.string(), requestSchema).default({}),
    requestState: z.string().optional(),
  })
  .refine(asked => asked.requestState !== undefined || Object.keys(asked.inputRequests).length > 0);

/** The sealed parts: a digest of the call's arguments, and the server's own state. */
const sealedSchema = z.tuple([z.string(), z.string().nullable()]);
type Sealed = z.output<typeof sealedSchema>;

interface RemoteCall {
  readonly server_id: string;
  readonly tool_name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/**
 * A call that a server may interrupt to ask for input (2026-07-28, multi round-trip requests). The client sends back the
 * server's state, which is sealed for this caller and this call.
 */
export class Conversation {
  readonly #call: RemoteCall;
  readonly #sealing: Sealing;
  readonly #boundTo: readonly string[];
  /** The capabilities declared in this request. Undefined: clients of this era cannot be asked. */
  readonly #declared: Capabilities | undefined = undefined;
  readonly #era: 'legacy' | 'modern';

  constructor(
    { sealing, era, caller }: { sealing: Sealing; era: 'legacy' | 'modern'; caller: Caller },
    call: RemoteCall,
    context: CallContext,
  ) {
    this.#call = call;
    this.#sealing = sealing;
    this.#era = era;
    const { tenantId, keyId, subject } = caller;
    this.#boundTo = [tenantId, keyId, subject?.userId ?? '', call.server_id, call.tool_name];
    if (era === 'legacy') return;
    const declared = envelope.safeParse(context.mcpReq.envelope);
    if (declared.success) this.#declared = declared.data[CLIENT_CAPABILITIES_META_KEY];
  }

  /** The capabilities to declare to the server: never more than the client's own. */
  get capabilities(): Capabilities {
    return this.#declared ?? {};
  }

  /**
   * Returns the replies to the server's input requests, and the server's own state. Returns undefined on the first attempt.
   * @throws ProtocolError -32602 for a state that is not ours, belongs to another call, or has expired
   */
  resume({
    mcpReq,
  }: CallContext): { inputResponses?: Record<string, unknown>; requestState?: string } | undefined {
    const state = mcpReq.requestState();
    if (state === undefined) return undefined;
    const opened = typeof state === 'string' ? this.#open(state) : undefined;
    if (opened === undefined) {
      throw new ProtocolError(
        ProtocolErrorCode.InvalidParams,
        'The requestState belongs to another call, was changed, or is older than 10 minutes. Repeat the call without it.',
        { reason: 'invalid_request_state' },
      );
    }
    const { requestState } = opened;
    return {
      ...(mcpReq.inputResponses === undefined ? {} : { inputResponses: mcpReq.inputResponses }),
      ...(requestState === null ? {} : { requestState }),
    };
  }

  /**
   * Relays the server's input requests to the client, or tells the model that the client cannot be asked.
   * @throws SwitchboardError `upstream_protocol`, `upstream_too_large`
   */
  ask(result: InputRequired): InputRequiredResult | CallToolResult {
    const asked = askedSchema.safeParse(result);
    if (!asked.success)
      throw new SwitchboardError(
        'upstream_protocol',
        'The MCP server asked for input in a form that MCP does not allow.',
      );
    const { inputRequests, requestState = null } = asked.data;
    if (JSON.stringify(inputRequests).length + JSON.stringify(requestState).length > MAX_CHARS)
      throw new SwitchboardError('upstream_too_large', "The MCP server's request for input is too long.");
    const declared = this.#declared;
    if (!declared || !Object.values(inputRequests).every(one => canAnswer(declared, one)))
      return this.#explain(inputRequests);
    return {
      resultType: 'input_required',
      // Checked only partly, because the client validates them with the protocol's own schemas.
      inputRequests: inputRequests as NonNullable<InputRequiredResult['inputRequests']>,
      requestState: this.#seal(requestState),
    };
  }

  #seal(requestState: string | null): string {
    const sealed: Sealed = [digestOf(this.#call.arguments), requestState];
    return this.#sealing.seal(PURPOSE, this.#boundTo, JSON.stringify(sealed), TTL_MS);
  }

  /** Hashes the arguments, which may be large, only for a state that was issued here for this tool. */
  #open(state: string): { requestState: string | null } | undefined {
    const text = this.#sealing.open(PURPOSE, this.#boundTo, state);
    if (text === undefined) return undefined;
    const [digest, requestState] = sealedSchema.parse(JSON.parse(text));
    return digest === digestOf(this.#call.arguments) ? { requestState } : undefined;
  }

  #explain(inputRequests: Readonly<Record<string, InputRequest>>): CallToolResult {
    const { server_id, tool_name } = this.#call;
    const entries = Object.entries(inputRequests);
    const lines = entries
      .slice(0, MAX_NAMED)
      .map(([key, request]) => `- ${sanitise(key, 80)}: ${describe(request)}`);
    if (entries.length > MAX_NAMED) lines.push(`- and ${entries.length - MAX_NAMED} more`);
    const text = [
      'The tool needs more input, which this client cannot provide. (input_required)',
      ...(lines.length === 0
        ? ['The tool expects a second call with a state that this client cannot send.']
        : ['It asks for:', ...lines]),
      cannotBeAsked(this.#era),
    ];
    return {
      content: [{ type: 'text', text: text.join('\n') }],
      isError: true,
      _meta: metaOf({ serverId: server_id, toolName: tool_name }),
    };
  }
}

const digestOf = (args: RemoteCall['arguments']): string =>
  createHash('sha256').update(JSON.stringify(args, sortKeys)).digest('base64url');

/** Sorts keys, because their order is irrelevant. */
function sortKeys(_key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const entries = Object.entries(value);
  return entries.length < 2 ? value : Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Returns whether a client can reply. Elicitation without a mode means forms (2026-07-28, "Client capabilities"). */
function canAnswer(
  { elicitation, sampling, roots }: Capabilities,
  { method, params = {} }: InputRequest,
): boolean {
  switch (method) {
    case 'elicitation/create':
      if (params['mode'] === 'url') return elicitation?.['url'] !== undefined;
      return (
        elicitation !== undefined && (elicitation['form'] !== undefined || elicitation['url'] === undefined)
      );
    case 'sampling/createMessage': {
      const needsTools = params['tools'] !== undefined || params['toolChoice'] !== undefined;
      return sampling !== undefined && (!needsTools || sampling['tools'] !== undefined);
    }
    case 'roots/list':
      return roots !== undefined;
  }
  return false;
}

/** Describes an input request in one line, with the server's cleaned text. */
function describe({ method, params = {} }: InputRequest): string {
  const { message, url, requestedSchema } = params;
  const schema = z.object({ properties: record }).safeParse(requestedSchema);
  const parts = [
    typeof message === 'string' ? sanitise(message, 300) : '',
    typeof url === 'string' ? sanitise(url, 500) : '',
    schema.success ? `fields: ${sanitise(Object.keys(schema.data.properties).join(', '), 300)}` : '',
  ];
  return [sanitise(method, 80), ...parts.filter(part => part !== '')].join('; ');
}
