import type { Router } from 'express';
import type { ManageView, Offer } from '../../core/identity/manage.ts';
import { errorKind, SwitchboardError } from '../../errors.ts';
import { formToken } from './cookies.ts';
import { callsPage } from './manage-calls.ts';
import {
  elsewherePage,
  listPage,
  openPage,
  problemPage,
  problemOf,
  revokeAllPage,
  revokedAllPage,
  type Forms,
  type Note,
} from './manage-page.ts';
import { leaving, route, requireToken, type PageRequest, type Site } from './page-router.ts';
import { seeOther, sendPage } from './page.ts';
import { refusal } from './refusals.ts';

const MAX_QUERY_CHARS = 200;

/** Serves the page on which a user sees, makes and ends connections, and sees what was called. */
export function manageRoutes(router: Router, { core, cookies, base }: Site): void {
  const { manage } = core.identity;
  const list = `${base}/manage`;
  const formsFor = (cookie: string): Forms => ({
    token: formToken(cookie),
    connect: `${list}/connect`,
    disconnect: `${list}/disconnect`,
    signOut: `${list}/sign-out`,
    revokeAll: `${list}/revoke-all`,
    calls: `${list}/calls`,
    back: list,
  });
  const actorOf = ({ actor, response }: PageRequest<never>) => ({ ...actor, signal: leaving(response) });

  /** Shows a page of the user's, or how to get there. */
  async function show(page: PageRequest<never>, render: (view: ManageView, forms: Forms) => unknown) {
    const cookie = cookies.manager(page.request);
    if (cookie === undefined) return sendPage(page.response, refusal('manage_without_link'));
    const view = await manage.view(cookie, actorOf(page));
    if (view) await render(view, formsFor(cookie));
    else sendPage(page.response, refusal('manage_over'));
  }

  route(router, '/manage', {
    get: page =>
      show(page, async (view, forms) => {
        const { note, find } = page.request.query;
        const query = typeof find === 'string' ? find.trim().slice(0, MAX_QUERY_CHARS) : '';
        const found = query === '' ? undefined : { query, offers: await search(page, query) };
        const shown = { view, forms, found, note: typeof note === 'string' ? note : undefined };
        sendPage(page.response, listPage(shown));
      }),
  });

  /** Resolves to undefined while searches are not possible. */
  async function search(page: PageRequest<never>, query: string): Promise<readonly Offer[] | undefined> {
    await core.rateLimits.take('callback', page.request.ip ?? '');
    try {
      return await manage.find(cookies.manager(page.request), query, actorOf(page));
    } catch (error) {
      if (error instanceof SwitchboardError && error.code === 'unavailable') return undefined;
      throw error;
    }
  }

  route(router, '/manage/calls', {
    get: page =>
      show(page, (view, forms) =>
        sendPage(page.response, callsPage(view, forms, page.request.query['page'])),
      ),
  });

  route(router, '/manage/connect', {
    async post(page, fields) {
      const { request, response } = page;
      const cookie = cookies.manager(request);
      if (cookie === undefined) return sendPage(response, refusal('manage_over'));
      requireToken(fields, cookie);
      await core.rateLimits.take('callback', request.ip ?? '');
      const { server, connection } = fields;
      const what = server === undefined ? { connectionId: connection ?? '' } : { serverId: server };
      try {
        const signingIn = cookies.ensureBrowser(request, response);
        const next = await manage.connect(cookie, what, actorOf(page), signingIn);
        if (!next) return sendPage(response, refusal('manage_over'));
        const { pathname } = new URL(next.url);
        // Where the app confirms sign-ins, the next page may be the provider's, to which no form may lead.
        if (pathname.startsWith(`${base}/connect/`)) seeOther(response, pathname);
        else sendPage(response, elsewherePage(next, list));
      } catch (error) {
        const problem = problemOf(error);
        if (error instanceof SwitchboardError && error.code === 'identity_token_invalid')
          return sendPage(response, refusal('manage_over'));
        if (!problem) throw error;
        sendPage(response, problemPage(problem, errorKind(problem.code).status, list));
      }
    },
  });

  route(router, '/manage/disconnect', {
    async post({ request, response, actor }, fields) {
      const cookie = cookies.manager(request);
      if (cookie === undefined) return sendPage(response, refusal('manage_over'));
      requireToken(fields, cookie);
      const done = await manage.disconnect(cookie, fields['connection'] ?? '', actor);
      if (done === undefined) return sendPage(response, refusal('manage_over'));
      const ended: Note = fields['kind'] === 'key' ? 'deleted' : 'disconnected';
      const note: Note = done ? ended : 'gone';
      seeOther(response, `${list}?note=${note}`);
    },
  });

  route(router, '/manage/sign-out', {
    async post({ request, response, actor }, fields) {
      const cookie = cookies.manager(request);
      if (cookie === undefined) return sendPage(response, refusal('manage_over'));
      requireToken(fields, cookie);
      const done = await manage.signOutClient(cookie, fields['client'] ?? '', actor);
      if (done === undefined) return sendPage(response, refusal('manage_over'));
      const note: Note = done ? 'signed_out' : 'signed_out_before';
      seeOther(response, `${list}?note=${note}`);
    },
  });

  route(router, '/manage/revoke-all', {
    get: page => show(page, (view, forms) => sendPage(page.response, revokeAllPage(view, forms))),
    async post({ request, response, actor }, fields) {
      const cookie = cookies.manager(request);
      if (cookie === undefined) return sendPage(response, refusal('manage_over'));
      requireToken(fields, cookie);
      const done = await manage.revokeAll(cookie, actor);
      cookies.clearManager(response);
      sendPage(response, done ? revokedAllPage() : refusal('manage_over'));
    },
  });

  // Registered last, because it also matches the paths above.
  route(router, '/manage/:link', {
    async get({ response, params: { link } }) {
      const view = await manage.viewLink(link);
      sendPage(response, view ? openPage(view, `${list}/${link}`) : refusal('manage_over'));
    },
    async post({ response, params: { link }, actor }) {
      const cookie = await manage.open(link, actor);
      if (cookie === undefined) return sendPage(response, refusal('manage_over'));
      cookies.setManager(response, cookie);
      seeOther(response, list);
    },
  });
}
