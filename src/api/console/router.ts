import { Router, type Request, type Response } from 'express';
import { z } from 'zod';
import { authenticate } from '../../core/access/admit.ts';
import type { Actor } from '../../core/access/audit.ts';
import type { Principal } from '../../core/access/caller.ts';
import { consoleSessionEnded } from '../../core/access/console-sessions.ts';
import type { Core } from '../../core/core.ts';
import { SwitchboardError } from '../../errors.ts';
import { readJsonBody, type MemoryBudget } from '../http/body.ts';
import { KIB, parseInput } from '../http/endpoint.ts';
import { methodNotAllowed } from '../http/pipeline.ts';
import { localsOf } from '../http/request.ts';
import type { Cookies } from '../pages/cookies.ts';
import { consoleFiles, PAGE_POLICY } from './files.ts';
import { countRefused, requireConsole, requireUnspent } from './session.ts';

const MAX_BODY_BYTES = 4 * KIB;

const signInBody = z.union(
  [z.strictObject({ key: z.string() }), z.strictObject({ link: z.string() })],
  'must have either key, an API key, or link, the secret of a link of the command line',
);

/** Serves the operator's console: its files, and the session of its browser. */
export function consoleRouter(core: Core, cookies: Cookies, budget: MemoryBudget): Router {
  const router = Router({ caseSensitive: true, strict: true });
  const sessions = core.consoleSessions;

  /** Returns the cookie of a new session. */
  async function signIn(request: Request, response: Response) {
    const sent = await readJsonBody(request, response, {
      maxBytes: MAX_BODY_BYTES,
      budget,
      keyId: 'console',
    });
    const body = parseInput(signInBody, sent);
    const { ip } = localsOf(response);
    if ('key' in body) {
      const holder = await holderOf(core, body.key, actorOf(response));
      await core.rateLimits.spend(holder.keyId, 'admin');
      return sessions.start(holder, actorOf(response));
    }
    await requireUnspent(core, ip);
    const opened = await sessions.open(body.link, actorOf(response));
    if (opened !== undefined) return opened;
    const refused = new SwitchboardError(
      'unauthorized',
      'This link was used or has expired. `switchboard console` creates a new one.',
    );
    await countRefused(core, refused, ip);
    await core.refusals.ofSignIn('link', actorOf(response));
    throw refused;
  }

  const session = router.route('/console/session');
  session.get(async (request, response) => {
    requireConsole(request);
    sendJson(response, await found(cookies.operator(request), localsOf(response).ip));
  });
  session.post(async (request, response) => {
    requireConsole(request);
    const cookie = await signIn(request, response);
    // At once, since a link is used up: whatever fails after this, the browser is signed in.
    cookies.setOperator(response, cookie);
    const before = cookies.operator(request);
    if (before !== undefined) await sessions.end(before, actorOf(response));
    sendJson(response, await found(cookie, localsOf(response).ip));
  });
  session.all((request, response) => {
    throw methodNotAllowed(response, request.method, 'GET, HEAD, POST');
  });

  const end = router.route('/console/session/end');
  end.post(async (request, response) => {
    requireConsole(request);
    const cookie = cookies.operator(request);
    cookies.clearOperator(response);
    if (cookie !== undefined) {
      const { ip } = localsOf(response);
      await requireUnspent(core, ip, cookie);
      if (!(await sessions.end(cookie, actorOf(response))))
        await countRefused(core, consoleSessionEnded(), ip);
    }
    sendJson(response, {});
  });
  end.all((request, response) => {
    throw methodNotAllowed(response, request.method, 'POST');
  });

  async function found(cookie: string | undefined, ip: string | undefined) {
    if (cookie === undefined) throw consoleSessionEnded();
    await requireUnspent(core, ip, cookie);
    const one = await sessions.find(cookie);
    if (one) return one;
    const ended = consoleSessionEnded();
    await countRefused(core, ended, ip);
    throw ended;
  }

  // Relative, because the service may be below a prefix.
  router.get('/console', (_request, response) => response.redirect(308, 'console/'));
  router.get('/console/*path', (request, response, next) => sendFile(request, response, next));
  router.get('/console/', (request, response, next) => sendFile(request, response, next));
  return router;
}

async function sendFile(request: Request, response: Response, next: () => void): Promise<void> {
  const name = request.path.slice('/console/'.length) || 'index.html';
  const headers = { 'Content-Security-Policy': PAGE_POLICY };
  if (!(await consoleFiles.send(request, response, name, headers))) next();
}

function sendJson(response: Response, value: unknown): void {
  response.set('Cache-Control', 'no-store').json(value);
}

function actorOf(response: Response) {
  const { requestId, ip } = localsOf(response);
  return { requestId, ip };
}

/** @throws SwitchboardError `unauthorized`, which names no header: the key is entered on a page */
async function holderOf(core: Core, key: string, actor: Actor): Promise<Principal> {
  try {
    return await authenticate(core, { key, token: undefined, ip: actor.ip });
  } catch (error) {
    if (!(error instanceof SwitchboardError) || error.code !== 'unauthorized') throw error;
    await core.refusals.ofSignIn('key', actor);
    throw new SwitchboardError('unauthorized', 'This is not a valid API key.', { cause: error });
  }
}
