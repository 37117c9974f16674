import express, { Router } from 'express';
import { z } from 'zod';
import { LOCAL_TENANT } from '../../core/access/tenants.ts';
import type { Core } from '../../core/core.ts';
import { clientSignal } from '../http/http.ts';
import { parseInput } from '../http/input.ts';
import { tenantId } from './operations/fields.ts';
import { operator } from './operator.ts';

const endUser = z.strictObject({ user_id: z.string(), tenant: tenantId.default(LOCAL_TENANT) });

/** `connections …` */
export function identityRoutes(core: Core, json: ReturnType<typeof express.json>): Router {
  const router = Router();
  const { tenants } = core.apiKeys;
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
