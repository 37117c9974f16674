import { z } from 'zod';
import { HEADER_NAME } from '../../core/catalogue/credential-schema.ts';
import { CONNECTION_STATES } from '../../core/identity/schema.ts';
import { serverId as serverIdSchema, wrongType } from './endpoint.ts';

/** The kinds of a connection. */
export const connectionKind = z.enum(['credentials', 'oauth', 'provider']);

/** A connection as the API of users and of operators returns it. */
export const connectionSchema = z.object({
  id: z.string(),
  kind: connectionKind.describe(
    "credentials: a key or other values for one server. oauth: an account at a server's own authorization server. provider: an account at an identity provider.",
  ),
  provider: z.string().nullable().describe('The identity provider, for kind provider.'),
  server_id: z.string().nullable().describe('The server; null for kind provider.'),
  issuer: z.string().nullable().describe('The authorization server, for kind oauth.'),
  title: z.string(),
  account: z.string().nullable().describe("The account's name for display."),
  fingerprint: z.string().nullable().describe('Tells one key from another without showing it.'),
  for_users: z
    .boolean()
    .describe('Whether calls for users carry it, where the user has no connection. For shared ones.'),
  scopes: z.array(z.string()),
  status: z
    .enum(CONNECTION_STATES)
    .describe(
      'needs_reauth: the user must sign in again. rejected: the server no longer accepts the key or the sign-in.',
    ),
  resource: z.string().nullable(),
  connected_at: z.iso.datetime(),
  last_used_at: z.iso.datetime().nullable(),
});

/** Scopes, in a request. */
export const scopeNames = z
  .array(
    z
      .string()
      .max(256)
      .regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, 'must be scope names (RFC 6749 §3.3)'),
  )
  .max(50);

/** The values of a connection with a server, in a request. */
export const credentialValues = {
  server_id: serverIdSchema,
  values: z
    .record(z.string().max(100), z.string(wrongType('must be a string')))
    .describe(
      "The values that the server requires, by name: `token` unless the server's entry names others.",
    ),
  header: z
    .string()
    .meta({ pattern: HEADER_NAME.source })
    .optional()
    .describe('The header that carries the key, if it is not Authorization and the entry names none.'),
};

export const madeConnection = connectionSchema.extend({
  tools: z.int().nullable().describe('How many tools the server listed. null: it could not be asked.'),
  problem: z.string().nullable().describe('Why the server could not be asked. The values were stored.'),
});

/** Returns the values of a request in the names of the core. */
export const givenOf = ({
  server_id: serverId,
  values,
  header,
}: {
  readonly server_id: string;
  readonly values: Record<string, string>;
  readonly header?: string | undefined;
}) => ({ serverId, values, ...(header === undefined ? {} : { header }) });
