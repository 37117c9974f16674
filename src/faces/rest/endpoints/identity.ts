import { z } from 'zod';
import { endpoint, KIB } from '../endpoint.ts';

/** The contract's identity endpoints. Not built yet: no handler, so a good key gets 501. */
const common = { tag: 'Identity', scope: 'identity', maxBodyBytes: 64 * KIB } as const;
const userId = z.string().min(1).describe("The caller's own id of the end user.");
const tokenSet = z.object({
  access_token: z.string(),
  refresh_token: z.string(),
  expires_in: z.int(),
  token_type: z.literal('Bearer'),
});

export const identityEndpoints = [
  endpoint({
    ...common,
    method: 'post',
    path: '/v1/identity/sessions',
    operationId: 'createSession',
    summary: 'Create an authorization session',
    description: 'Starts an OAuth authorization of an end user at an identity provider.',
    rateClass: 'sessions',
    errors: ['rate_limited', 'not_implemented'],
    bodySchema: z.strictObject({ user_id: userId, provider: z.string() }),
    responseSchema: z.object({ session_id: z.string(), auth_url: z.string(), expires_at: z.iso.datetime() }),
  }),
  endpoint({
    ...common,
    method: 'get',
    path: '/v1/identity/sessions/:session_id',
    operationId: 'getSession',
    summary: 'Poll an authorization session',
    description: 'Says how an authorization session stands. A final status is delivered once.',
    errors: ['not_implemented'],
    responseSchema: z.object({
      status: z.enum(['pending', 'complete', 'error']),
      error: z.string().optional(),
    }),
  }),
  endpoint({
    ...common,
    method: 'post',
    path: '/v1/identity/refresh',
    operationId: 'refreshToken',
    summary: 'Refresh an identity token',
    description: 'Each refresh token works once.',
    rateClass: 'refresh',
    errors: ['rate_limited', 'not_implemented'],
    bodySchema: z.strictObject({ refresh_token: z.string() }),
    responseSchema: tokenSet,
  }),
  endpoint({
    ...common,
    method: 'post',
    path: '/v1/identity/revoke',
    operationId: 'revokeUser',
    summary: "Revoke all of a user's tokens",
    description: 'Ends the identity token, the refresh tokens and the stored provider tokens of an end user.',
    rateClass: 'revoke',
    errors: ['rate_limited', 'not_implemented'],
    bodySchema: z.strictObject({ user_id: userId }),
    responseSchema: z.object({ success: z.literal(true) }),
  }),
];
