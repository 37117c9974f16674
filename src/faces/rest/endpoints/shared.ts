import { z } from 'zod';

export const jsonObject = z.record(z.string(), z.unknown());

export const serverId = z
  .string("must be a string: a server's id as POST /v1/search returns it")
  .min(1, 'must not be empty')
  .max(256, 'must have at most 256 characters')
  .describe("The server's id, as search returns it.");

export const queryLogId = z
  .string()
  .max(64)
  .optional()
  .describe('The query_log_id of the search that led here.');

export const UPSTREAM_ERRORS = ['server_not_found', 'server_inactive', 'rate_limited'] as const;
