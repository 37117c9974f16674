import { createHash } from 'node:crypto';
import {
  CLIENT_CAPABILITIES_META_KEY,
  inputRequired,
  UrlElicitationRequiredError,
  type CallToolResult,
  type InputRequiredResult,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import type { SwitchboardError } from '../../errors.ts';
import { metaOf, type SignIn } from './content.ts';
import { opensUrls, opensUrlsCapability } from './sessions.ts';
import type { CallContext } from './tools.ts';

/** How to ask a client to open a URL (2025-11-25: an error; 2026-07-28: a result that asks for input). */
type UrlElicitation = 'error' | 'input-required';

const envelope = z.object({ [CLIENT_CAPABILITIES_META_KEY]: opensUrlsCapability });

/** Returns how the client of this request can be asked to open a URL, if at all. */
export function urlElicitationOf(
  era: 'legacy' | 'modern',
  session: string | undefined,
  context: CallContext,
): UrlElicitation | undefined {
  if (era === 'legacy') return opensUrls(session) ? 'error' : undefined;
  return envelope.safeParse(context.mcpReq.envelope).success ? 'input-required' : undefined;
}

/** The members of `connection_required` where there is a page that a user can be sent to. */
const membersSchema = z.object({
  kind: z.enum(['credentials', 'oauth', 'provider']),
  provider: z.string().optional(),
  reason: z.string(),
  missing: z.array(z.string()),
  missing_scopes: z.array(z.string()).optional(),
  session_id: z.string(),
  auth_url: z.string(),
  expires_at: z.string(),
});

/** The key of the client's reply in its second attempt (2026-07-28, multi round-trip requests). */
const INPUT = 'sign_in';

interface RefusedCall {
  readonly serverId: string;
  /** Absent: its tools were to be listed. */
  readonly toolName?: string;
  /** Returns the display name of a provider. */
  readonly titleOf: (provider: string) => string;
  readonly elicitation: UrlElicitation | undefined;
  /** The client's replies to an earlier request for input. */
  readonly inputResponses: Readonly<Record<string, unknown>> | undefined;
}

/**
 * Asks the client to open the sign-in page if a call lacks a connection, or tells the model if the client cannot. If a client
 * that was asked returns without a connection, the model is told too: "accept" only means that the user agreed to open the
 * page, and asking again would loop.
 * @throws UrlElicitationRequiredError if the client's revision requires an error
 */
export function askToSignIn(
  error: SwitchboardError,
  call: RefusedCall,
): CallToolResult | InputRequiredResult {
  const members = membersSchema.safeParse(error.members);
  // Only an operator can connect a server for a whole tenant.
  if (!members.success) throw error;
  const { session_id: sessionId, ...signIn } = members.data;
  const { kind, provider = '' } = signIn;
  const needs = NEEDS[kind](call.titleOf(provider));
  const purpose = call.toolName === undefined ? 'list its tools' : `run ${call.toolName}`;
  const step = kind === 'credentials' ? 'Enter it on the page' : 'Sign in there';
  const message = `${call.serverId} needs ${needs} to ${purpose}. ${step}, then repeat the call.`;
  const url = signIn.auth_url;
  if (call.elicitation === 'error') {
    // Calls that wait for the same sign-in share an id. The session id itself is the caller's secret.
    const elicitationId = createHash('sha256').update(sessionId).digest('base64url');
    throw new UrlElicitationRequiredError([{ mode: 'url', elicitationId, url, message }], message);
  }
  const wasAsked = call.inputResponses !== undefined && Object.hasOwn(call.inputResponses, INPUT);
  if (call.elicitation === 'input-required' && !wasAsked)
    return inputRequired({ inputRequests: { [INPUT]: inputRequired.elicitUrl({ message, url }) } });
  return {
    content: [{ type: 'text', text: textOf(error, signIn) }],
    isError: true,
    _meta: metaOf({ serverId: call.serverId, toolName: call.toolName, signIn }),
  };
}

const NEEDS = {
  credentials: () => 'a key of yours',
  oauth: () => 'your account there',
  provider: (title: string) => `your account at ${title}`,
} as const;

const textOf = (error: SwitchboardError, signIn: SignIn) =>
  [
    `${error.detail} (${error.code})`,
    `auth_url: ${signIn.auth_url}`,
    `expires_at: ${signIn.expires_at}`,
    ...(signIn.provider === undefined ? [] : [`provider: ${signIn.provider}`]),
    `reason: ${signIn.reason}`,
    ...(signIn.missing.length === 0
      ? []
      : [
          `${signIn.kind === 'credentials' ? 'missing_values' : 'missing_scopes'}: ${signIn.missing.join(' ')}`,
        ]),
    signIn.kind === 'credentials'
      ? 'Give the user the auth_url. After they have entered the key, repeat this call; nothing else is needed.'
      : 'Give the user the auth_url. After they have signed in, repeat this call; nothing else is needed.',
  ].join('\n');
