import { z } from 'zod';
import { errorCodes } from '../../../errors.ts';
import { wrongType } from '../../http/input.ts';

export const serverId = z
  .string(wrongType("must be a string: a server's id as POST /v1/search returns it"))
  .min(1)
  .max(256)
  .describe("The server's id, as search returns it.");

export const SERVER_ERRORS = [
  'identity_token_required',
  'identity_token_invalid',
  'connection_required',
  'server_not_found',
  'server_inactive',
  'rate_limited',
  'quota_exceeded',
  'provider_not_configured',
  'unavailable',
] as const;

/** On the two convenience endpoints whatever the server does wrong is a 502. */
export const UPSTREAM_ERRORS = errorCodes.filter(
  code => code.startsWith('upstream_') || code === 'provider_unavailable',
);

/** See docs/tools.md. */
export const warnings = z
  .array(z.string())
  .optional()
  .describe(
    'What to know before the tool is called: definition_changed (within the last 7 days), suspicious:<rule id>. Absent: nothing.',
  );
