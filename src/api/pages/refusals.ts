import type { ServerResponse } from 'node:http';
import { errorKind, type ErrorCode, type SwitchboardError } from '../../errors.ts';
import { addHeaders } from '../http/request.ts';
import { html, sendPage, type Page } from './page.ts';

const REFUSALS = {
  link_over: {
    title: 'This link no longer works',
    text: 'This link was already used or has expired. Nothing was changed. Go back to the app and begin again.',
  },
  link_over_or_elsewhere: {
    title: 'This link does not work here',
    text: 'This link was already used or has expired, or it was begun in another browser. Nothing was changed. Finish in the browser in which you began, or begin again from the app.',
  },
  other_browser: {
    title: 'Finish in the browser in which you began',
    text: 'This sign-in began in another browser, so it cannot end in this one. Nothing was changed. Finish in the browser in which you began, or begin again from the app.',
  },
  undo_over: {
    title: 'This cannot be undone here any more',
    text: 'It was undone already, or the ten minutes are over. The app can give you a page on which you end its connections.',
  },
  manage_over: {
    title: 'This page is no longer open',
    text: 'A link to your connected accounts works once, and the page stays open for a quarter of an hour. Ask the app for a new link.',
  },
} as const;
export type Refusal = keyof typeof REFUSALS;

/** Returns the page of a refusal: 400, and nothing was changed. */
export const refusal = (name: Refusal): Page => plain(400, REFUSALS[name].title, REFUSALS[name].text);

/** Texts for users, in place of the errors' own texts, which are for callers. */
const ERRORS: Partial<Record<ErrorCode, { readonly title: string; readonly text: string }>> = {
  host_not_allowed: {
    title: 'This request was refused',
    text: 'It did not come from a page of this service, so nothing was changed. Go back to the app and begin again.',
  },
  route_not_found: {
    title: 'There is no such page',
    text: 'The link is not whole, or what it showed is gone. Go back to the app and begin again.',
  },
  method_not_allowed: { title: 'This is not possible here', text: 'Open the link in a browser.' },
  payload_too_large: { title: 'Too much was sent', text: 'Go back, and try again.' },
  unsupported_media_type: { title: 'This is not a form', text: 'Go back, and try again.' },
  rate_limited: {
    title: 'Too many sign-ins at once',
    text: 'Too many came from your network within a minute. Wait a minute, then reload this page.',
  },
  unavailable: {
    title: 'Not available at the moment',
    text: 'Something that is needed for this cannot be reached. Wait a little, then reload this page.',
  },
};

/** Answers with an error page, which never tells what went wrong inside. */
export function sendErrorPage(response: ServerResponse, error: SwitchboardError, requestId: string): void {
  const isOurs = error.status >= 500 && ERRORS[error.code] === undefined;
  const { title, text } = ERRORS[error.code] ?? (isOurs ? FAILED : UNREADABLE);
  if (error.retryAfterSec !== undefined) addHeaders(response, { 'Retry-After': String(error.retryAfterSec) });
  sendPage(response, plain(errorKind(error.code).status, title, text, requestId));
}

const FAILED = {
  title: 'Something went wrong on our side',
  text: 'Go back to the app and try again. If it happens again, tell the app’s support the reference below.',
};
const UNREADABLE = {
  title: 'This request could not be understood',
  text: 'Nothing was changed. Go back to the app and begin again.',
};

const plain = (status: number, title: string, text: string, requestId?: string): Page => ({
  status,
  title,
  body: html`<p role="alert">${text}</p>
    ${requestId !== undefined && html`<p><small>Reference: ${requestId}</small></p>`}`,
});
