import { SwitchboardError } from '../../errors.ts';
import type { Credential } from '../identity/credentials.ts';
import { errorOf, isRpcError, type RpcAnswer } from './envelope.ts';
import { restated } from './failures.ts';

/** Shorter ones are no tokens of any provider, and would stand in ordinary words. */
const MIN_TOKEN_CHARS = 8;

const REDACTED = '[redacted]';

/**
 * The text without the user's token, which a careless server repeats where it refuses it. Tokens are plain ASCII (RFC 6750
 * §2.1), so they look the same inside of JSON.
 */
export function redact(text: string, credential: Credential | undefined): string {
  const token = tokenOf(credential);
  if (token === undefined) return text;
  // In lower case, as content types become.
  return text.replaceAll(token, REDACTED).replaceAll(token.toLowerCase(), REDACTED);
}

/** The answer, without the token if it is an error. Results are the caller's, unchanged. */
export function redactAnswer(
  answer: RpcAnswer | undefined,
  credential: Credential | undefined,
): RpcAnswer | undefined {
  const error = credential && errorOf(answer);
  if (!error) return answer;
  const text = JSON.stringify(error);
  const clean = redact(text, credential);
  if (clean === text) return answer;
  const redacted: unknown = JSON.parse(clean);
  return { error: isRpcError(redacted) ? redacted : { code: error.code, message: 'redacted' } };
}

/** Whatever part of an upstream's answer a text of ours quotes. */
export const redactError = (thrown: unknown, credential: Credential | undefined): unknown => {
  if (!(thrown instanceof SwitchboardError)) return thrown;
  const clean = redact(thrown.detail, credential);
  return clean === thrown.detail ? thrown : restated(thrown, clean);
};

function tokenOf(credential: Credential | undefined): string | undefined {
  const token = credential?.authorization.replace(/^\S+\s+/, '');
  return token !== undefined && token.length >= MIN_TOKEN_CHARS ? token : undefined;
}
