import { setTimeout as delay } from 'node:timers/promises';
import type { Router } from 'express';
import type { Provider } from 'oidc-provider';
import type { Grants } from '../../core/identity/grants/grants.ts';
import { mcpScopesIn } from '../../core/identity/grants/scopes.ts';
import type { PageHolder } from '../../core/identity/manage.ts';
import { SwitchboardError } from '../../errors.ts';
import { formToken } from '../pages/cookies.ts';
import { refusedSignIn } from '../pages/page-sign-in.ts';
import { noSuchPage, requireToken, route, type PageRequest, type Site } from '../pages/page-router.ts';
import { seeOther, sendPage } from '../pages/page.ts';
import { refusal } from '../pages/refusals.ts';
import { consentPage, expiredPage, signedInPage, whoPage, type AskingClient } from './consent-page.ts';
import { findResource, type Resource } from './resources.ts';
import type { AuthorizationServer } from './server.ts';

type ClientModel = NonNullable<Awaited<ReturnType<Provider['Client']['find']>>>;

const MAX_TRIES = 10;
const AGAIN_MS = 100;

interface Parts {
  readonly server: AuthorizationServer;
  readonly grants: Grants;
  readonly publicUrl: string;
}

/** A request of a client that waits for the user, and belongs to this browser. */
interface Waiting {
  readonly provider: Provider;
  readonly clientId: string;
  readonly client: AskingClient;
  /** The address that the client's tokens will be for. */
  readonly resource: string;
  /** Where the browser goes on, if the user has answered. */
  readonly answered: string | undefined;
}

type ConsentRequest = PageRequest<'uid'>;

/** Serves the pages on which a user signs in, and consents to a client's request. */
export function consentRoutes(router: Router, site: Site, { server, grants, publicUrl }: Parts): void {
  const { core, cookies, base } = site;
  const { manage, pageSignIns } = core.identity;
  const pathOf = ({ params: { uid } }: ConsentRequest) => `/auth/consent/${uid}`;

  /** Resolves to undefined if the request has expired, was answered, or was begun in another browser. */
  async function waitingOf({ request, response, params }: ConsentRequest): Promise<Waiting | undefined> {
    await core.rateLimits.take('page', request.ip ?? '');
    const provider = await server.provider();
    try {
      const { uid, params: asked, result, returnTo } = await provider.interactionDetails(request, response);
      const client = await server.for(request, () => provider.Client.find(textOf(asked['client_id'])));
      const resource = findResource(publicUrl, textOf(asked['resource'] ?? `${publicUrl}/mcp`));
      if (uid !== params.uid || !client || !resource) return undefined;
      const { clientId } = client;
      const answered = result === undefined ? undefined : returnTo;
      return {
        provider,
        clientId,
        resource: resource.url,
        client: askingClient(client, resource, asked),
        answered,
      };
    } catch (error) {
      // By name, because the package is loaded only when it is needed.
      if (error instanceof Error && error.name === 'SessionNotFound') return undefined;
      const isClients = error instanceof Error && error.name.startsWith('InvalidClient');
      if (!isClients) throw error;
      const text = 'The document that says what the app is cannot be read now.';
      throw new SwitchboardError('unavailable', text, { retryAfterSec: 5, cause: error });
    }
  }

  function askingClient(
    client: Pick<ClientModel, 'clientId' | 'clientName'>,
    { serverId }: Resource,
    asked: Readonly<Record<string, unknown>>,
  ): AskingClient {
    const publishedAt = 'clientIdMetadataDocument' in client ? new URL(client.clientId).host : undefined;
    return {
      name: client.clientName ?? publishedAt ?? 'an unnamed app',
      publishedAt,
      redirectUri: textOf(asked['redirect_uri']),
      serverName: serverId && (core.catalogue.get(serverId)?.name ?? serverId),
      scopes: mcpScopesIn(textOf(asked['scope'])),
    };
  }

  async function showWho(page: ConsentRequest, { client }: Waiting, isLinkOver = false): Promise<void> {
    const { request, response } = page;
    const token = formToken(cookies.ensureBrowser(request, response));
    const choices = await pageSignIns.choices();
    sendPage(
      response,
      whoPage(client, {
        action: `${base}${pathOf(page)}`,
        token,
        choices,
        isLinkOver,
        link: `${publicUrl}/manage/`,
      }),
    );
  }

  async function allow(page: ConsentRequest, waiting: Waiting, holder: PageHolder): Promise<void> {
    const { request, response, actor } = page;
    const { provider, clientId, client, resource } = waiting;
    const { name, scopes } = client;
    const grantId = await grants.create(holder, { clientId, name, resource, scopes }, actor);
    if (grantId === undefined) return sendPage(response, refusal('manage_over'));
    const { userId: accountId } = holder;
    const grant = new provider.Grant({ accountId, clientId });
    grant.jti = grantId;
    grant.addResourceScope(resource, scopes.join(' '));
    await grant.save();
    const result = { login: { accountId, remember: false }, consent: { grantId }, select_account: {} };
    await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
  }

  /** A second click finds the answer of the first, perhaps a moment later. */
  async function showAnswered(page: ConsentRequest): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const waiting = await waitingOf(page);
      if (waiting?.answered !== undefined) return seeOther(page.response, waiting.answered);
      if (!waiting) break;
      await delay(AGAIN_MS);
    }
    sendPage(page.response, expiredPage());
  }

  route(router, '/auth/consent/:uid', {
    async get(page) {
      const { request, response } = page;
      const waiting = await waitingOf(page);
      if (!waiting) return sendPage(response, expiredPage());
      if (waiting.answered !== undefined) return seeOther(response, waiting.answered);
      const cookie = cookies.manager(request);
      const holder = await manage.holder(cookie);
      if (cookie === undefined || !holder) return showWho(page, waiting);
      await grants.keepClient(waiting.clientId);
      const sent = { action: `${base}${pathOf(page)}`, token: formToken(cookie) };
      sendPage(response, consentPage(waiting.client, holder, sent));
    },
    async post(page, { answer, ...fields }) {
      const { request, response } = page;
      const waiting = await waitingOf(page);
      if (!waiting) return sendPage(response, expiredPage());
      const cookie = cookies.manager(request);
      const holder = await manage.holder(cookie);
      if (!holder) return showWho(page, waiting);
      requireToken(fields, cookie);
      // The first answer counts, of several tabs or clicks.
      if (!(await grants.records.use('Interaction', page.params.uid))) return showAnswered(page);
      if (answer === 'allow') return allow(page, waiting, holder);
      const result = { error: 'access_denied', error_description: 'the user did not allow it' };
      await waiting.provider.interactionFinished(request, response, result);
    },
  });

  route(router, '/auth/consent/:uid/someone-else', {
    async post(page, fields) {
      requireToken(fields, cookies.manager(page.request));
      cookies.clearManager(page.response);
      seeOther(page.response, `${base}${pathOf(page)}`);
    },
  });

  route(router, '/auth/consent/:uid/link', {
    // The address that a page with a mistake has.
    get: page => seeOther(page.response, `${base}${pathOf(page)}`),
    async post(page, fields) {
      const { request, response, actor } = page;
      const waiting = await waitingOf(page);
      if (!waiting) return sendPage(response, expiredPage());
      // Otherwise a page of somebody else could sign this browser in.
      requireToken(fields, cookies.browser(request));
      const link = /([^/\s]+)\s*$/.exec(fields['link'] ?? '')?.[1] ?? '';
      const opened = await manage.open(link, actor);
      if (opened !== undefined) cookies.setManager(response, opened);
      // It may have been opened in another tab before.
      else if (!(await manage.holder(cookies.manager(request)))) return showWho(page, waiting, true);
      seeOther(response, `${base}${pathOf(page)}`);
    },
  });

  route(router, '/auth/consent/:uid/provider', {
    async post(page, fields) {
      const { request, response } = page;
      if (!(await waitingOf(page))) return sendPage(response, expiredPage());
      requireToken(fields, cookies.browser(request));
      await core.rateLimits.take('callback', request.ip ?? '');
      const begun = await pageSignIns.begin({ provider: fields['provider'] ?? '' }, pathOf(page));
      if (!begun) throw noSuchPage();
      cookies.setPageSignIn(response, begun.kept, begun.keptMs);
      seeOther(response, begun.url);
    },
  });

  // Where the browser is after the provider's own page.
  route(router, '/auth/consent/:uid/signed-in', {
    async get(page) {
      await core.rateLimits.take('page', page.request.ip ?? '');
      sendPage(page.response, refusedSignIn(page.request) ?? signedInPage(`${base}${pathOf(page)}`));
    },
  });
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');
