import { SwitchboardError } from '../../../errors.ts';
import type { Credential } from '../../identity/connections/credentials.ts';
import { errorOf, isRpcError, type RpcAnswer } from './envelope.ts';
import { cleanText } from '../../../platform/sanitize.ts';
import { restated } from './failures.ts';

/** Shorter tokens are none of any provider's, and would stand in ordinary words. */
const MIN_TOKEN_CHARS = 8;

const REDACTED = '[redacted]';

/** The part of a text that is shown is much shorter. */
const MAX_SEARCHED_CHARS = 64 * 1024;

/**
 * Returns the text without the user's token, which a careless server repeats where it refuses it. Tokens are plain ASCII
 * (RFC 6750 §2.1), so they look the same inside JSON.
 */
export function redact(text: string, credential: Credential | undefined): string {
  const token = tokenOf(credential);
  if (token === undefined) return text;
  const clean = plainly(text, token);
  return hides(clean, token) ? REDACTED : clean;
}

/** Content types are turned into lower case, so the token is looked for in lower case, too. */
const plainly = (text: string, token: string): string =>
  text.replaceAll(token, REDACTED).replaceAll(token.toLowerCase(), REDACTED);

/**
 * Returns whether the token stands in the text with other characters between its own. Cleaning the text for display
 * (`cleanText`) removes some of them, and would put the token together again. Such a text is no accident, and goes as a whole.
 */
function hides(text: string, token: string): boolean {
  if (text.length <= token.length) return false;
  const bare = cleanText(text.slice(0, MAX_SEARCHED_CHARS)).replaceAll(/[^\x21-\x7e]+/g, '');
  return bare.includes(token) || bare.toLowerCase().includes(token.toLowerCase());
}

/** Returns the answer, without the token if it is an error. Results are the caller's, unchanged. */
export function redactAnswer(
  answer: RpcAnswer | undefined,
  credential: Credential | undefined,
): RpcAnswer | undefined {
  const error = errorOf(answer);
  const token = tokenOf(credential);
  if (!error || token === undefined) return answer;
  const text = JSON.stringify(error);
  const clean = JSON.stringify(error, (_key, value: unknown) =>
    typeof value === 'string' ? redact(value, credential) : value,
  );
  // The names of members may hold the token, too. Nobody cleans those for display.
  const whole = plainly(clean, token);
  if (whole === text) return answer;
  const redacted: unknown = JSON.parse(whole);
  return { error: isRpcError(redacted) ? redacted : { code: error.code, message: 'redacted' } };
}

/** Returns the error without the token, whatever part of an upstream's answer its text quotes. */
export const redactError = (thrown: unknown, credential: Credential | undefined): unknown => {
  if (!(thrown instanceof SwitchboardError)) return thrown;
  const clean = redact(thrown.detail, credential);
  return clean === thrown.detail ? thrown : restated(thrown, clean);
};

function tokenOf(credential: Credential | undefined): string | undefined {
  const token = credential?.authorization.replace(/^\S+\s+/, '');
  return token !== undefined && token.length >= MIN_TOKEN_CHARS ? token : undefined;
}
