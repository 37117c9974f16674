import express, { Router } from 'express';
import { z } from 'zod';
import type { Core } from '../../core/core.ts';
import { parseInput } from '../http/input.ts';

const retirement = z.strictObject({ key_id: z.string() });

/** `keys rewrap`, `retire` and `rotate-signing`: the keys behind the vault and the identity tokens. */
export function keyRoutes(core: Core, json: ReturnType<typeof express.json>): Router {
  const router = Router();
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
