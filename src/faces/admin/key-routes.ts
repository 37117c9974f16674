import express, { Router } from 'express';
import { z } from 'zod';
import { SCOPES } from '../../core/caller.ts';
import type { Core } from '../../core/core.ts';
import { parseInput } from '../input.ts';
import { tenantId } from './identity-routes.ts';

const MAX_OVERLAP_SEC = 366 * 24 * 3600;

const newKey = z.strictObject({
  name: z.string().min(1).max(200),
  tenant: tenantId.optional(),
  user_id: z.string().optional(),
  scopes: z.array(z.enum(SCOPES)).min(1).optional(),
  expires_at: z.iso
    .datetime({ offset: true })
    .refine(time => Date.parse(time) > Date.now(), 'must be in the future')
    .optional(),
});
const rotation = z.strictObject({
  overlap_sec: z
    .int('must be whole seconds')
    .min(0, 'must not be negative')
    .max(MAX_OVERLAP_SEC, `must be at most ${MAX_OVERLAP_SEC / 86_400} days`),
});
const retirement = z.strictObject({ key_id: z.string() });

/** `keys …`: API keys, and the keys behind the vault and the identity tokens. */
export function keyRoutes(core: Core, json: ReturnType<typeof express.json>): Router {
  const router = Router();
  router.get('/keys', async (_request, response) => void response.json({ keys: await core.apiKeys.list() }));
  router.post('/keys', json, async (request, response) => {
    const { name, tenant, user_id, scopes, expires_at } = parseInput(newKey, request.body);
    const expiresAt = expires_at === undefined ? undefined : new Date(expires_at);
    response.json(await core.apiKeys.create({ name, tenantId: tenant, userId: user_id, scopes, expiresAt }));
  });
  router.post('/keys/:id/rotate', json, async (request, response) => {
    const { overlap_sec } = parseInput(rotation, request.body);
    response.json(await core.apiKeys.rotate(request.params.id, overlap_sec * 1000));
  });
  router.post('/keys/:id/revoke', async (request, response) => {
    response.json(await core.apiKeys.revoke(request.params.id));
  });

  router.post('/vault/rewrap', async (_request, response) => {
    response.json({ sealed: await core.identity.vaultKeys.rewrap() });
  });
  router.post('/vault/retire', json, async (request, response) => {
    const { key_id } = parseInput(retirement, request.body);
    await core.identity.vaultKeys.requireUnused(key_id);
    response.json({ key_id, unused: true });
  });
  router.post('/signing-keys/rotate', async (_request, response) => {
    response.json(await core.identity.signingKeys.rotate());
  });
  return router;
}
