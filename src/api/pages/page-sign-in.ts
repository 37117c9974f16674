import type { Request, Response, Router } from 'express';
import type { Actor } from '../../core/access/audit.ts';
import type { PageSignInView } from '../../core/identity/sign-in/page-sign-in.ts';
import { formToken } from './cookies.ts';
import { noSuchPage, requireToken, route, type Site } from './page-router.ts';
import { appName, html, named, pageButton, seeOther, sendPage, visible, type Page } from './page.ts';
import { refusal } from './refusals.ts';

const REASONS = ['page_sign_in_failed', 'page_sign_in_unknown', 'page_sign_in_several'] as const;

interface Returned {
  readonly request: Request;
  readonly response: Response;
  readonly provider: string;
  readonly query: URLSearchParams;
  readonly actor: Actor;
}

/** Serves the sign-in to the page of connections. */
export function pageSignInRoutes(router: Router, { core, cookies, base }: Site) {
  const { pageSignIns } = core.identity;

  route(router, '/manage/sign-in/:tenant', {
    async get({ request, response, params: { tenant } }) {
      const view = await pageSignIns.view(tenant);
      if (!view) throw noSuchPage();
      const token = formToken(cookies.ensureBrowser(request, response));
      sendPage(response, startPage(view, { action: `${base}/manage/sign-in/${tenant}`, token }));
    },
    async post({ request, response, params: { tenant } }, fields) {
      // Otherwise a page of somebody else could sign this browser in.
      requireToken(fields, cookies.browser(request));
      await core.rateLimits.take('callback', request.ip ?? '');
      const begun = await pageSignIns.begin({ tenantId: tenant });
      if (!begun) throw noSuchPage();
      cookies.setPageSignIn(response, begun.kept, begun.keptMs);
      seeOther(response, begun.url);
    },
  });

  // A page of its own, so that code and state do not stay in the history.
  route(router, '/manage/signed-in', {
    async get({ request, response }) {
      sendPage(response, refusedSignIn(request) ?? enteredPage(`${base}/manage`));
    },
  });

  return {
    /** Responds to a callback if this browser has begun such a sign-in with it. Resolves to whether it did. */
    async returned({ request, response, provider, query, actor }: Returned): Promise<boolean> {
      const entered = await pageSignIns.returned(provider, query, cookies.pageSignIn(request), actor);
      if (!entered) return false;
      cookies.clearPageSignIn(response);
      if (entered.kind === 'entered') cookies.setManager(response, entered.browser);
      const page = entered.next === undefined ? '/manage/signed-in' : `${entered.next}/signed-in`;
      const refused = entered.kind === 'refused' ? `?refused=${entered.reason}` : '';
      seeOther(response, `${base}${page}${refused}`);
      return true;
    },
  };
}

/** Returns the page that says why a sign-in was refused; undefined if it was not. */
export function refusedSignIn({ query }: Request): Page | undefined {
  const reason = REASONS.find(one => one === query['refused']);
  return reason && refusal(reason);
}

const startPage = (view: PageSignInView, sent: { action: string; token: string }): Page => ({
  title: 'Your connected accounts',
  // Chromium applies this to every redirect after a form, and many providers first redirect users to another host.
  formTargets: ['https:', view.providerOrigin],
  body: html` <p>
      See which accounts ${appName(view)} can use for you and what was called with them, and connect and
      disconnect them.
    </p>
    <p class="note">
      Sign in with the ${named(view.provider)} account that you have at ${appName(view)}. It only shows who
      you are; nothing is connected.
    </p>
    <form method="post" action="${sent.action}">
      <input type="hidden" name="token" value="${sent.token}" />
      <div class="buttons"><button>Sign in with ${visible(view.provider)}</button></div>
    </form>`,
});

/** The way to the list is a link: browsers do not send its cookie with a redirect that began on the provider's site. */
const enteredPage = (list: string): Page => ({
  title: 'You are signed in',
  body: html` <p>The page of your connections stays open in this browser for 15 minutes.</p>
    <div class="buttons">${pageButton(list, 'Show your connections')}</div>`,
});
