import type { Router } from 'express';
import { formToken } from './cookies.ts';
import { listPage, openPage, revokeAllPage, revokedAllPage, type Note } from './manage-pages.ts';
import { seeOther, sendPage } from './page.ts';
import { refusal } from './refusals.ts';
import { at, requireToken, type Site } from './page-router.ts';

/** The page on which a user sees and ends connections. */
export function manageRoutes(router: Router, { core, cookies, base }: Site): void {
  const { manage } = core.identity;
  const list = `${base}/manage`;
  const formsFor = (cookie: string) => ({
    token: formToken(cookie),
    disconnect: `${list}/disconnect`,
    revokeAll: `${list}/revoke-all`,
    back: list,
  });

  at(router, '/manage', {
    async get({ request, response }) {
      const cookie = cookies.manager(request);
      const view = await manage.view(cookie);
      if (cookie === undefined || !view) return sendPage(response, refusal('manage_over'));
      const note = request.query['note'];
      sendPage(response, listPage(view, formsFor(cookie), typeof note === 'string' ? note : undefined));
    },
  });

  at(router, '/manage/disconnect', {
    async post({ request, response, actor }, fields) {
      const cookie = cookies.manager(request);
      if (cookie === undefined) return sendPage(response, refusal('manage_over'));
      requireToken(fields, cookie);
      const done = await manage.disconnect(cookie, fields['connection'] ?? '', actor);
      if (done === undefined) return sendPage(response, refusal('manage_over'));
      const note: Note = done ? 'disconnected' : 'gone';
      seeOther(response, `${list}?note=${note}`);
    },
  });

  at(router, '/manage/revoke-all', {
    async get({ request, response }) {
      const cookie = cookies.manager(request);
      const view = await manage.view(cookie);
      if (cookie === undefined || !view) return sendPage(response, refusal('manage_over'));
      sendPage(response, revokeAllPage(view, formsFor(cookie)));
    },
    async post({ request, response, actor }, fields) {
      const cookie = cookies.manager(request);
      if (cookie === undefined) return sendPage(response, refusal('manage_over'));
      requireToken(fields, cookie);
      const done = await manage.revokeAll(cookie, actor);
      cookies.clearManager(response);
      sendPage(response, done ? revokedAllPage() : refusal('manage_over'));
    },
  });

  // Last: the paths above would be links, too.
  at(router, '/manage/:link', {
    async get({ response, params: { link } }) {
      const isOpen = await manage.isOpen(link);
      sendPage(response, isOpen ? openPage(`${list}/${link}`) : refusal('manage_over'));
    },
    async post({ response, params: { link }, actor }) {
      const cookie = await manage.open(link, actor);
      if (cookie === undefined) return sendPage(response, refusal('manage_over'));
      cookies.setManager(response, cookie);
      seeOther(response, list);
    },
  });
}
