import { setTimeout as delay } from 'node:timers/promises';
import { decodeJwt, generateKeyPair, SignJWT, UnsecuredJWT, type CryptoKey, type JWTPayload } from 'jose';
import { Holds, type Hold, type When } from './holds.ts';

/** The endpoints whose behaviour a test can spoil. */
export type FaultyEndpoint = 'token' | 'revocation' | 'discovery' | 'jwks';

/** `clock-ahead` and `clock-behind` are a provider whose clock is 10 minutes off; the others change one claim or the signature. */
export type IdTokenRewrite =
  | 'alg-none'
  | 'other-key'
  | 'wrong-audience'
  | 'expired'
  | 'wrong-nonce'
  | 'clock-ahead'
  | 'clock-behind'
  | 'empty-sub'
  | 'other-sub'
  | 'unverified-email';

/** How an endpoint misbehaves until the test assigns something else. */
export interface Faults {
  /** The request waits this long before the provider sees it. */
  readonly delayBeforeMs?: number;
  /** The provider has done its work, but the answer waits this long. */
  readonly delayAfterMs?: number;
  /** Never answers; the provider never sees the request. */
  readonly hang?: boolean;
  /** Answers this status; the provider never sees the request. */
  readonly status?: number;
  /** Answers an HTML page with status 200, as a captive portal does; the provider never sees the request. */
  readonly html?: boolean;
  /** The right answer with 10 MB of padding: a client without a limit would accept it. */
  readonly tooLarge?: boolean;
  /** The first half of the right answer. */
  readonly truncated?: boolean;
  /** An equal request gets the first answer again, so that a code can be used twice. */
  readonly repeats?: boolean;
  readonly omitAccessToken?: boolean;
  readonly omitRefreshToken?: boolean;
  /** The scope the token answer says was granted. */
  readonly narrowScope?: string;
  readonly rewriteIdToken?: IdTokenRewrite;
  /** Replaces members of the answer, such as `token_endpoint` in the discovery document. */
  readonly metadata?: Readonly<Record<string, unknown>>;
}

/** The key the provider signs with, to sign a changed claim again. */
export interface SigningKey {
  readonly kid: string;
  readonly privateKey: CryptoKey;
}

const TOO_LARGE_BYTES = 10 * 1024 * 1024;
const CLOCK_SHIFT_SEC = 600;

/** What is wrong with the endpoints right now, as tests set it, and where requests are held. */
export class FaultInjection {
  readonly faults: Record<FaultyEndpoint, Faults> = { token: {}, revocation: {}, discovery: {}, jwks: {} };
  readonly #holds = new Holds();

  /** Stops every request to the endpoint before (or after) the provider has processed it, until released. */
  hold(endpoint: FaultyEndpoint, when: When): Hold {
    return this.#holds.hold(endpoint, when);
  }

  /** Waits as long as a hold or a delay of this endpoint says. */
  async pass(endpoint: FaultyEndpoint, when: When): Promise<void> {
    await this.#holds.pass(endpoint, when);
    const { delayBeforeMs, delayAfterMs } = this.faults[endpoint];
    const delayMs = when === 'before' ? delayBeforeMs : delayAfterMs;
    if (delayMs !== undefined) await delay(delayMs, undefined, { ref: false });
  }
}

/** A JSON answer of the provider with the faults worked in. */
export async function spoil(text: string, faults: Faults, signingKey: SigningKey): Promise<string> {
  // A revocation is answered with an empty body.
  if (text === '' && !faults.tooLarge) return text;
  const answer = JSON.parse(text || '{}') as Record<string, unknown>;
  if (faults.omitAccessToken) delete answer['access_token'];
  if (faults.omitRefreshToken) delete answer['refresh_token'];
  if (faults.narrowScope !== undefined) answer['scope'] = faults.narrowScope;
  if (faults.rewriteIdToken && typeof answer['id_token'] === 'string')
    answer['id_token'] = await rewrite(answer['id_token'], faults.rewriteIdToken, signingKey);
  if (faults.tooLarge) answer['padding'] = 'x'.repeat(TOO_LARGE_BYTES);
  const spoilt = JSON.stringify({ ...answer, ...faults.metadata });
  return faults.truncated ? spoilt.slice(0, spoilt.length / 2) : spoilt;
}

const CHANGES: Readonly<Record<Exclude<IdTokenRewrite, 'alg-none'>, (claims: JWTPayload) => JWTPayload>> = {
  'other-key': () => ({}),
  'wrong-audience': () => ({ aud: 'another-client' }),
  expired: ({ iat = 0 }) => ({ exp: iat - 3600 }),
  'wrong-nonce': () => ({ nonce: 'a-nonce-of-another-session' }),
  'clock-ahead': claims => shifted(claims, CLOCK_SHIFT_SEC),
  'clock-behind': claims => shifted(claims, -CLOCK_SHIFT_SEC),
  'empty-sub': () => ({ sub: '' }),
  'other-sub': () => ({ sub: 'another-account' }),
  'unverified-email': () => ({ email_verified: false }),
};

const shifted = ({ iat = 0, exp = 0 }: JWTPayload, seconds: number) => ({
  iat: iat + seconds,
  exp: exp + seconds,
});

async function rewrite(idToken: string, how: IdTokenRewrite, signingKey: SigningKey): Promise<string> {
  const claims = decodeJwt(idToken);
  if (how === 'alg-none') return new UnsecuredJWT(claims).encode();
  const { kid, privateKey } = signingKey;
  const key = how === 'other-key' ? (await generateKeyPair('ES256')).privateKey : privateKey;
  return new SignJWT({ ...claims, ...CHANGES[how](claims) })
    .setProtectedHeader({ alg: 'ES256', kid })
    .sign(key);
}
