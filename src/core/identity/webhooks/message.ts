import { createHmac, randomBytes } from 'node:crypto';
import { SwitchboardError } from '../../../errors.ts';
import type { GuardedFetch } from '../../../platform/outbound/fetch.ts';
import { reasonOf } from '../../../platform/telemetry/throttled-log.ts';
import type { Binding } from '../vault/vault.ts';

/** After this long without an answer, an attempt has failed. */
export const TIMEOUT_MS = 10_000;
const PREFIX = 'whsec_';

/** A message as Standard Webhooks 1.0 describes it. */
export interface Message {
  readonly id: string;
  readonly url: string;
  readonly body: string;
  /** The current secret first. */
  readonly secrets: readonly string[];
}

export interface Answer {
  /** Undefined: there was no answer. */
  readonly status: number | undefined;
  /** Why the message does not count as delivered, without any text of the receiver; undefined if it was. */
  readonly problem: string | undefined;
}

/** Creates a signing secret: 256 random bits. */
export const newWebhookSecret = (): string => `${PREFIX}${randomBytes(32).toString('base64')}`;

/** Binds a secret to its row. */
export const secretBinding = ({ tenantId, id }: { tenantId: string; id: string }): Binding => ({
  table: 'webhook_secrets',
  tenantId,
  userId: '',
  id,
  purpose: 'signature',
});

/** Sends a message once. Never throws. @param nowMs the time of this attempt, in milliseconds since the epoch */
export async function send(
  fetch: GuardedFetch,
  { id, url, body, secrets }: Message,
  nowMs: number,
  signal?: AbortSignal,
): Promise<Answer> {
  if (secrets.length === 0)
    return { status: undefined, problem: 'there is no signing secret: run switchboard webhook rotate' };
  const timestamp = String(Math.floor(nowMs / 1000));
  const headers = {
    'content-type': 'application/json',
    'user-agent': 'switchboard',
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': secrets.map(secret => signature(secret, `${id}.${timestamp}.${body}`)).join(' '),
  };
  try {
    const { status } = await fetch(url, { method: 'POST', headers, body, signal });
    if (status >= 200 && status < 300) return { status, problem: undefined };
    const why = status >= 300 && status < 400 ? ': redirects are not followed' : '';
    return { status, problem: `HTTP ${status}${why}` };
  } catch (error) {
    return { status: undefined, problem: whyUnanswered(error) };
  }
}

function signature(secret: string, text: string): string {
  const key = Buffer.from(secret.slice(PREFIX.length), 'base64');
  return `v1,${createHmac('sha256', key).update(text).digest('base64')}`;
}

/** The address that a name resolved to stays unsaid, as in every refusal of the outbound guard. */
function whyUnanswered(error: unknown): string {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
  const refusal = [error, cause].find(one => one instanceof SwitchboardError);
  if (refusal) return 'the address is not allowed';
  if (error instanceof Error && error.name === 'TimeoutError')
    return `no answer within ${TIMEOUT_MS / 1000} s`;
  const { code } = cause as NodeJS.ErrnoException;
  return code ?? reasonOf(cause);
}
