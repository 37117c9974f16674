import type { ServerResponse } from 'node:http';
import { errorKind, type ErrorCode, type SwitchboardError } from '../../errors.ts';
import { addHeaders } from '../http/request.ts';
import { html, sendPage, type Page } from './page.ts';

const REFUSALS = {
  link_over: {
    title: 'This link no longer works',
    text: 'This link was already used or has expired. Nothing was changed. Start again where you got the link.',
  },
  link_over_or_elsewhere: {
    title: 'This link does not work here',
    text: 'This link was already used, has expired, or was opened in another browser. Nothing was changed. Continue in the browser in which you started, or start again where you got the link.',
  },
  other_browser: {
    title: 'Continue in the browser in which you started',
    text: 'This sign-in was started, or started again, in another browser. Nothing was changed. Continue in that browser, or open the link again in this one.',
  },
  undo_over: {
    title: 'This can no longer be undone here',
    text: 'It was already undone, ten minutes have passed, or a later sign-in has taken its place. Ask the app for a link to the page where you can disconnect accounts.',
  },
  manage_over: {
    title: 'This page has expired',
    text: 'A link to your connected accounts works once, and the page expires after 15 minutes. Ask the app for a new link.',
  },
  manage_without_link: {
    title: 'You need a link from your app',
    text: 'This page shows the accounts that an app has connected for you. Ask the app for a link to it; the page then stays open in your browser for 15 minutes. Some apps have an address of their own for this page, at which you sign in. They can tell you.',
  },
  page_sign_in_failed: {
    title: 'You are not signed in',
    text: 'The sign-in was not completed, and nothing was changed. Begin again where you started.',
  },
  page_sign_in_unknown: {
    title: 'Nothing is kept for this account',
    text: 'The app has no user with the account that you signed in with. Use the account that you have at the app, or ask the app for a link to this page.',
  },
  page_sign_in_several: {
    title: 'Your account is known in several places',
    text: 'Several apps here know the account that you signed in with, so it does not say which one you mean. Ask the app for a link.',
  },
} as const;
export type Refusal = keyof typeof REFUSALS;

/** Returns the page for a refused request: 400, without any change. */
export const refusal = (name: Refusal): Page => plain(400, REFUSALS[name].title, REFUSALS[name].text);

/** Texts for users, instead of the errors' own texts for callers. */
const ERRORS: Partial<Record<ErrorCode, { readonly title: string; readonly text: string }>> = {
  host_not_allowed: {
    title: 'This request was refused',
    text: 'It did not come from a page of this service, so nothing was changed. Start again where you began.',
  },
  route_not_found: {
    title: 'There is no such page',
    text: 'The link is incomplete or no longer valid. Start again where you got it.',
  },
  method_not_allowed: { title: 'This is not allowed here', text: 'Open the link in a browser.' },
  payload_too_large: { title: 'Too much was sent', text: 'Go back, and try again.' },
  unsupported_media_type: { title: 'This is not a form', text: 'Go back, and try again.' },
  rate_limited: {
    title: 'Too many sign-ins at once',
    text: 'There were too many sign-ins from your network. Wait a minute, then reload this page.',
  },
  unavailable: {
    title: 'Temporarily unavailable',
    text: 'A service that this page needs cannot be reached. Wait a moment, then reload this page.',
  },
};

/** Responds with an error page, which never reveals internal details. */
export function sendErrorPage(response: ServerResponse, error: SwitchboardError, requestId: string): void {
  const isOurs = error.status >= 500 && ERRORS[error.code] === undefined;
  const { title, text } = ERRORS[error.code] ?? (isOurs ? FAILED : UNREADABLE);
  if (error.retryAfterSec !== undefined) addHeaders(response, { 'Retry-After': String(error.retryAfterSec) });
  sendPage(response, plain(errorKind(error.code).status, title, text, requestId));
}

const FAILED = {
  title: 'Something went wrong on our side',
  text: 'Go back to the app and try again. If it happens again, give the app’s support team the reference below.',
};
const UNREADABLE = {
  title: 'This request could not be understood',
  text: 'Nothing was changed. Start again where you began.',
};

const plain = (status: number, title: string, text: string, requestId?: string): Page => ({
  status,
  title,
  body: html`<p role="alert">${text}</p>
    ${requestId !== undefined && html`<p><small>Reference: ${requestId}</small></p>`}`,
});
