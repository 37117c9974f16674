import type { Asker, CallOutcome } from '../../core/identity/calls.ts';
import type { ManageView, NamedCalls } from '../../core/identity/manage.ts';
import { isOperatorId, PAGE_KEY_ID } from '../../core/access/caller.ts';
import { appName, html, named, pageButton, time, type Html, type Page } from './page.ts';

const PAGE_ROWS = 25;

/** Names the outcomes of calls for users. */
const OUTCOMES: Readonly<Record<CallOutcome, { readonly word: string; readonly isBad?: true }>> = {
  worked: { word: 'worked' },
  answered: { word: 'answered' },
  failed: { word: 'failed', isBad: true },
  refused: { word: 'refused', isBad: true },
  not_connected: { word: 'refused: not connected', isBad: true },
  stopped: { word: 'stopped' },
};

/** The page of all calls that are kept. */
export function callsPage(
  view: ManageView,
  { calls, back }: { readonly calls: string; readonly back: string },
  asked: unknown,
): Page {
  const pages = Math.max(1, Math.ceil(view.calls.length / PAGE_ROWS));
  const wanted = typeof asked === 'string' && /^\d{1,4}$/.test(asked) ? Number(asked) : 1;
  const page = Math.min(Math.max(1, wanted), pages);
  const shown = view.calls.slice((page - 1) * PAGE_ROWS, page * PAGE_ROWS);
  return {
    title: 'Called for you lately',
    body: html` <p>What was called for ${named(view.user)} in the last 30 days, the newest first.</p>
      ${callList(view, shown)}
      ${pages > 1 && html`<p>Page ${page} of ${pages}. Older calls are not kept.</p>`}
      <div class="buttons">
        ${page > 1 && html`<a class="button second" href="${calls}?page=${page - 1}">Newer</a>`}
        ${page < pages && html`<a class="button second" href="${calls}?page=${page + 1}">Older</a>`}
        ${pageButton(back)}
      </div>`,
  };
}

/** Lists calls, or says that there are none. */
export const callList = (view: ManageView, shown: readonly NamedCalls[]): Html =>
  shown.length === 0
    ? html`<p>Nothing was called for you in the last 30 days.</p>`
    : html`<ul class="plain">
          ${shown.map(one => call(one, view))}
        </ul>
        <p class="help">
          ${
            shown.some(({ outcome }) => outcome === 'answered') &&
            '“Answered”: the server replied, and it is not known whether it did what was asked. '
          }${
            shown.some(({ outcome }) => outcome === 'stopped') &&
            '“Stopped”: the app went away before the end; it may have been done. '
          }What
          was sent, and what came back, is not kept.
        </p>`;

function call({ serverName, tool, outcome, times, lastAt, asker }: NamedCalls, view: ManageView): Html {
  const { word, isBad } = OUTCOMES[outcome];
  return html`<li class="call">
    <p>
      <strong>${named(serverName)}</strong> <code>${named(tool)}</code>
      <span class="state${isBad && ' bad'}">${word}</span>
    </p>
    <p class="help">
      ${times > 1 && `${times} times, the last on `}${time(lastAt)}, by ${askerName(asker, view)}
    </p>
  </li>`;
}

/** Names who asked for a call or a connection, for the user. */
export function askerName({ keyId, keyName, kind }: Asker, view: Pick<ManageView, 'app'>): Html {
  if (keyId === PAGE_KEY_ID) return html`you, on this page`;
  if (isOperatorId(keyId)) return html`the operator of this service`;
  if (keyName === undefined) return appName(view);
  if (kind === 'client') return html`${named(keyName)}`;
  return kind === 'own'
    ? html`your own key “${named(keyName)}”`
    : html`${appName(view)}, with the key “${named(keyName)}”`;
}
