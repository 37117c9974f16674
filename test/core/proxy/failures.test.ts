import { describe, expect, it } from 'vitest';
import type { AuthSpec } from '../../../src/core/catalogue/entry.ts';
import { withAccessAdvice } from '../../../src/core/proxy/hints.ts';
import { httpFailure } from '../../../src/core/proxy/upstream/failures.ts';

describe('the wait that a server asks for', () => {
  const nowMs = Date.UTC(2026, 10, 21, 12, 0, 0);
  it.each([
    ['7', 7],
    [' 0 ', 0],
    ['Sat, 21 Nov 2026 12:00:30 GMT', 30],
    ['Sat, 21 Nov 2026 11:00:00 GMT', 0],
    ['-5', undefined],
    ['1.5', undefined],
    ['soon', undefined],
    ['', undefined],
    [undefined, undefined],
    ['99999999999999999999', 300],
    ['9'.repeat(400), 300],
    ['Fri, 31 Dec 9999 23:59:59 GMT', 300],
  ])('%j is %s s', (value, seconds) => {
    const headers = value === undefined ? {} : { 'retry-after': value };
    expect(httpFailure({ status: 429, headers, nowMs, excerpt: '' }).retryAfterSec).toBe(seconds);
  });
});

describe('a server that asks for a wait of years', () => {
  it.each([
    [429, 'upstream_rate_limited', 300],
    [503, 'upstream_unavailable', 60],
  ])('HTTP %i is %s; callers are told to wait %i s', (status, code, seconds) => {
    const headers = { 'retry-after': '999999999' };
    const error = httpFailure({ status, headers, nowMs: 0, excerpt: '' });
    expect(error).toMatchObject({ code, retryAfterSec: seconds });
    expect(error.detail).toMatch(new RegExp(`Try again in ${seconds} s\\.$`));
  });
});

describe('a refusal', () => {
  const refused = (status: number, auth: AuthSpec, excerpt = '') =>
    withAccessAdvice(httpFailure({ status, headers: {}, nowMs: 0, excerpt }), { id: 'notes', auth }).detail;

  it.each<[AuthSpec, RegExp]>([
    [{ kind: 'static_header' }, /The key that was entered may lack a permission\./],
    [
      { kind: 'own_oauth' },
      /has a sign-in of its own.*Ask the operator to run npx switchboard connect notes to sign in again\./,
    ],
    [{ kind: 'user_oauth' }, /names no identity provider.*catalogue add ID URL --provider NAME/],
    [{ kind: 'none' }, /According to its catalogue entry, it needs no sign-in.*switchboard catalogue add/],
    [
      { kind: 'unknown' },
      /Ask the operator to run npx switchboard connect notes if .*catalogue add ID URL --provider NAME/,
    ],
  ])('without a token says what can be done, by the kind of sign-in in the entry: %j', (auth, advice) => {
    expect(refused(401, auth)).toMatch(/^The MCP server requires a sign-in \(HTTP 401\)\. /);
    expect(refused(401, auth)).toMatch(advice);
    expect(refused(403, auth)).toMatch(
      /^The MCP server refused access \(HTTP 403\)\. It may require a sign-in\. /,
    );
    expect(refused(403, auth)).toMatch(advice);
  });

  it('says to callers what to ask the operator, and to the operator what to do', () => {
    const failure = httpFailure({ status: 401, headers: {}, nowMs: 0, excerpt: '' });
    const { detail, operatorDetail } = withAccessAdvice(failure, {
      id: 'notes',
      auth: { kind: 'own_oauth' },
    });
    const begin = 'The MCP server requires a sign-in (HTTP 401). It has a sign-in of its own.';
    expect(detail).toBe(`${begin} Ask the operator to run npx switchboard connect notes to sign in again.`);
    expect(operatorDetail).toBe(`${begin} Run npx switchboard connect notes to sign in again.`);
  });

  it('of a user`s token says what the user can do', () => {
    const auth: AuthSpec = { kind: 'user_oauth', provider: 'local' };
    expect(refused(401, auth)).toMatch(/HTTP 401.*rejected the token.*user must reconnect the account/);
    expect(refused(403, auth)).toMatch(/HTTP 403.*may lack a permission/);
  });

  it('with HTTP 403 gives the server`s own reason', () => {
    expect(refused(403, { kind: 'none' }, '{"error":"plan_expired"}')).toMatch(
      /\(HTTP 403\): \{"error":"plan_expired"\}\. It may/,
    );
  });
});
