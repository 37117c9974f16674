import type { Router } from 'express';
import { SwitchboardError } from '../../errors.ts';
import { formToken } from './cookies.ts';
import { seeOther, sendPage } from './page.ts';
import { refusal } from './refusals.ts';
import { at, noSuchPage, requireToken, type Site } from './page-router.ts';
import { completePage, confirmPage, connectPage, failedPage } from './sign-in-pages.ts';

/** A sign-in from the user's side: our page where there is one, the provider's callback, the confirmation, the result. */
export function signInRoutes(router: Router, { core, cookies, base }: Site): void {
  const { signIns } = core.identity;
  const resultUrl = (result: string) => `${base}/oauth/done/${result}`;

  at(router, '/connect/:ticket', {
    async get({ response, params: { ticket } }) {
      const view = await signIns.view(ticket);
      sendPage(response, view ? connectPage(view, `${base}/connect/${ticket}`) : refusal('link_over'));
    },
    async post({ request, response, params: { ticket } }) {
      const providerUrl = await signIns.begin(ticket, cookies.ensureBrowser(request, response));
      if (providerUrl === undefined) sendPage(response, refusal('link_over_or_elsewhere'));
      else seeOther(response, providerUrl);
    },
  });

  at(router, '/oauth/callback/:provider', {
    async onlyGet({ request, response, params: { provider }, actor }) {
      await core.rateLimits.take('callback', request.ip ?? '');
      const browser = cookies.browser(request);
      const outcome = await signIns.callback(provider, queryOf(request.url), browser, actor);
      // On to a page of its own, so that code and state stay in no history.
      if (outcome.kind === 'result') seeOther(response, resultUrl(outcome.result));
      else sendPage(response, refusal(outcome.reason));
    },
  });

  at(router, '/oauth/done/:result', {
    async get({ request, response, params: { result } }) {
      const browser = cookies.browser(request);
      const view = await signIns.result(result, browser);
      if (!view) throw noSuchPage();
      if (view.state === 'error') sendPage(response, failedPage(view));
      else if (view.state === 'complete') sendPage(response, completePage(view, `${resultUrl(result)}/undo`));
      else sendPage(response, confirmPage(view, `${resultUrl(result)}/confirm`, formToken(browser ?? '')));
    },
  });

  at(router, '/oauth/done/:result/confirm', {
    async post({ request, response, params: { result }, actor }, fields) {
      const browser = cookies.browser(request);
      if (browser === undefined) return sendPage(response, refusal('other_browser'));
      requireToken(fields, browser);
      const { decision } = fields;
      if (decision !== 'connect' && decision !== 'cancel')
        throw new SwitchboardError('invalid_request', 'decision: must be connect or cancel');
      const isOwn = await signIns.confirm(result, browser, decision === 'connect', actor);
      if (isOwn) seeOther(response, resultUrl(result));
      else sendPage(response, refusal('link_over_or_elsewhere'));
    },
  });

  at(router, '/oauth/done/:result/undo', {
    // Without a cookie: whoever was led to the result can undo it, in whichever browser.
    async post({ response, params: { result }, actor }) {
      if (await signIns.undo(result, actor)) seeOther(response, resultUrl(result));
      else sendPage(response, refusal('undo_over'));
    },
  });
}

/** As it came: Express would make lists of what comes twice. */
function queryOf(url: string): URLSearchParams {
  const mark = url.indexOf('?');
  return new URLSearchParams(mark < 0 ? '' : url.slice(mark + 1));
}
