import express, { Router } from 'express';
import { z } from 'zod';
import { LOCAL_TENANT } from '../../core/access/tenants.ts';
import { SIGN_IN_MODES } from '../../core/caller.ts';
import type { Core } from '../../core/core.ts';
import { clientSignal } from '../http.ts';
import { parseInput } from '../input.ts';
import { operator } from './operator.ts';

export const tenantId = z
  .string()
  .regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, 'must be 1 to 64 of a-z, 0-9, "_", "-"');

const tenantChange = z.strictObject({
  name: z
    .string()
    .max(100)
    // It stands on pages: what is not seen there, or turns other text around, is no part of a name.
    .regex(/^[^\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]*$/u, 'must be one line of visible characters')
    .optional(),
  mode: z.enum(SIGN_IN_MODES).optional(),
  return_urls: z.array(z.string()).max(100).optional(),
});
const endUser = z.strictObject({ user_id: z.string(), tenant: tenantId.default(LOCAL_TENANT) });

/** `tenant …` and `connections …` */
export function identityRoutes(core: Core, json: ReturnType<typeof express.json>): Router {
  const router = Router();
  const { tenants } = core.apiKeys;
  router.get('/tenants/:id', async (request, response) => {
    response.json(await tenants.get(request.params.id));
  });
  router.post('/tenants/:id', json, async (request, response) => {
    const { name, mode, return_urls } = parseInput(tenantChange, request.body);
    response.json(await tenants.change(request.params.id, { name, mode, returnUrls: return_urls }));
  });

  router.get('/connections', async (request, response) => {
    const { user_id, tenant } = parseInput(endUser, request.query);
    await tenants.get(tenant);
    response.json({ connections: await core.identity.connections.list(tenant, user_id) });
  });
  router.post('/connections/link', json, async (request, response) => {
    const { user_id, tenant } = parseInput(endUser, request.body);
    await tenants.get(tenant);
    const caller = { ...operator(clientSignal(response)), tenantId: tenant };
    response.json(await core.identity.manage.createLink(caller, user_id));
  });
  return router;
}
