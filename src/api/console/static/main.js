import { signal } from '@preact/signals';
import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import {
  dismiss,
  findSession,
  generation,
  hrefOf,
  html,
  isOnline,
  messages,
  place,
  readPlace,
  say,
  session,
  signIn,
  signOut,
  whySignedOut,
  whyReadOnly,
} from './lib.js';
import { Empty, Icon, Screen, Trouble } from './parts.js';

/** @typedef {() => import('preact').VNode} View */

/**
 * The screens in the order of the navigation. Their code is loaded when they open.
 * @type {readonly { path: string, word: string, load: () => Promise<{ default: View }> }[]}
 */
const SCREENS = [
  { path: '', word: 'Overview', load: () => import('./screens/overview.js') },
  { path: 'search', word: 'Search', load: () => import('./screens/search.js') },
  { path: 'catalogue', word: 'Catalogue', load: () => import('./screens/catalogue.js') },
  { path: 'connections', word: 'Connections', load: () => import('./screens/connections.js') },
  { path: 'setup', word: 'Setup', load: () => import('./screens/setup.js') },
  { path: 'keys', word: 'Keys', load: () => import('./screens/keys.js') },
  { path: 'activity', word: 'Activity', load: () => import('./screens/activity.js') },
];

const screenOf = (/** @type {string} */ path) => SCREENS.find(one => one.path === path);

function Shell() {
  const { path } = place.value;
  const [isOpen, setOpen] = useState(false);
  const name = path[0] ?? '';
  useEffect(() => setOpen(false), [path.join('/')]);
  return html`<div class="shell">
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <nav class=${`side ${isOpen ? 'open' : ''}`} aria-label="Console">
      <div class="brand">
        <a href="#/">Switchboard</a>
        <button
          type="button"
          id="menu"
          aria-expanded=${isOpen}
          aria-controls="screens"
          onClick=${() => setOpen(!isOpen)}
        >
          <${Icon} name="menu" />Menu
        </button>
      </div>
      <ul id="screens" class="folds">
        ${SCREENS.map(
          screen =>
            html`<li key=${screen.path}>
              <a href=${hrefOf(screen.path)} aria-current=${screen.path === name ? 'page' : undefined}>
                <${Icon} name=${screen.path || 'overview'} />${screen.word}
              </a>
            </li>`,
        )}
      </ul>
      <${Foot} />
    </nav>
    <div>
      <${Banners} />
      <main id="main" tabindex="-1"><${Current} name=${name} /></main>
    </div>
  </div>`;
}

/** The address stays that of the screen. @param {Event} event */
const skip = event => {
  event.preventDefault();
  document.querySelector('main')?.focus();
};

function Foot() {
  const { value } = session;
  if (typeof value !== 'object') return undefined;
  const who =
    { operator: 'the terminal', environment: 'SWITCHBOARD_API_KEY' }[value.key_id] ??
    value.key_name ??
    value.key_id;
  const leave = () => void signOut().catch(problem => say(problem.message, 'bad'));
  return html`<div class="foot folds">
    <p><span class="quiet">Signed in by</span><br />${who}</p>
    <p><a href="../docs">API reference</a></p>
    <button type="button" class="small" onClick=${leave}>Sign out</button>
  </div>`;
}

const Banners = () =>
  html`<div role="status">
    ${!isOnline.value && html`<p class="banner">The connection to Switchboard is lost. Trying again…</p>`}
    ${whyReadOnly() !== undefined && html`<p class="banner info">${whyReadOnly()}</p>`}
  </div>`;

/** @type {Map<string, View>} */
const views = new Map();

/** The screen of the address, once its code is there. @param {{ name: string }} props */
function Current({ name }) {
  const [failed, setFailed] = useState(/** @type {string | undefined} */ (undefined));
  const [, setLoaded] = useState(0);
  const screen = screenOf(name);
  const again = generation.value;
  useEffect(() => {
    if (!screen || views.has(name)) return;
    // Browsers remember that a module failed: only a new page asks for it again.
    if (failed === name) return location.reload();
    screen.load().then(
      module => {
        views.set(name, module.default);
        setLoaded(views.size);
      },
      () => {
        setFailed(name);
        // If the connection is lost, this finds out, and everything is loaded again once it is back.
        void findSession();
      },
    );
  }, [name, again]);
  if (!screen)
    return html`<${Screen} title="Not found">
      <${Empty} title="The console has no such screen."><a href="#/">Go to the overview</a><//>
    <//>`;
  const View = views.get(name);
  if (View) return html`<${View} key=${name} />`;
  return failed === name && isOnline.value
    ? html`<${Trouble} problem=${{ message: 'The screen could not be loaded.' }} onRetry=${() => location.reload()} />`
    : html`<p class="loading">Loading…</p>`;
}

function SignIn() {
  const [problem, setProblem] = useState(/** @type {Error | undefined} */ (undefined));
  const [isSending, setSending] = useState(false);
  useEffect(() => {
    document.title = 'Sign in · Switchboard';
  }, []);
  /** @param {SubmitEvent & { currentTarget: HTMLFormElement }} event */
  const send = async event => {
    event.preventDefault();
    setSending(true);
    const key = new FormData(event.currentTarget).get('key');
    await signIn({ key: typeof key === 'string' ? key.trim() : '' }).catch(error => {
      setProblem(error);
      setSending(false);
    });
  };
  return html`<main class="sign-in">
    <form class="card" onSubmit=${send}>
      <h1>Switchboard console</h1>
      ${whySignedOut.value && html`<p class="callout" role="status">${whySignedOut.value}</p>`}
      ${linkProblem.value && html`<${Trouble} problem=${linkProblem.value} />`}
      <div class="field">
        <label for="key">Admin key</label>
        <input
          id="key"
          name="key"
          type="password"
          autocomplete="current-password"
          required
          autofocus
          aria-describedby="key-help"
        />
        <p class="help" id="key-help">An API key with the scope admin, or admin_read to look only.</p>
      </div>
      <${Trouble} problem=${problem} />
      <button class="first" disabled=${isSending}>Sign in</button>
      <p class="quiet">
        On the machine of the server, <code>npx switchboard console</code> opens this page without a key.
      </p>
    </form>
  </main>`;
}

/** Why a link from the terminal did not work. @type {import('@preact/signals').Signal<Error | undefined>} */
const linkProblem = signal(/** @type {Error | undefined} */ (undefined));

const Messages = () =>
  html`<div class="messages" role="status" aria-live="polite">
    ${messages.value.map(
      ({ id, text, tone }) =>
        html`<div key=${id} class=${tone}>
          <span>${text}</span>
          <button type="button" class="icon-only" aria-label="Dismiss" onClick=${() => dismiss(id)}>
            <${Icon} name="close" />
          </button>
        </div>`,
    )}
  </div>`;

function App() {
  const { value } = session;
  const shown = { unknown: html`<${Banners} />`, none: html`<${SignIn} />` };
  return html`<div>${typeof value === 'string' ? shown[value] : html`<${Shell} />`}<${Messages} /></div>`;
}

/** `/` leads to the search of a screen, unless somebody is typing. @param {KeyboardEvent} event */
function onKey(event) {
  const { target } = event;
  const isTyping =
    target instanceof HTMLElement && target.matches('input, textarea, select, [contenteditable]');
  if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
  const search = document.querySelector('main [data-search="true"]');
  if (!(search instanceof HTMLElement) || document.querySelector('dialog[open]')) return;
  event.preventDefault();
  search.focus();
}

/** Signs in by the link in the address. Resolves to false if there is none. */
async function followLink() {
  const link = /^#link=([\w-]+)$/.exec(location.hash)?.[1];
  if (link === undefined) return false;
  // The link is a secret: it must not stay in the history.
  history.replaceState(null, '', location.pathname);
  place.value = readPlace();
  linkProblem.value = undefined;
  await signIn({ link }).catch(problem => {
    linkProblem.value = problem;
    // One that is signed in stays so.
    if (typeof session.value === 'object') say(problem.message, 'bad');
  });
  return true;
}

async function start() {
  addEventListener('keydown', onKey);
  addEventListener('hashchange', () => void followLink());
  const root = document.querySelector('#console');
  if (!(await followLink())) {
    // The first screen and the session are loaded side by side.
    void screenOf(place.value.path[0] ?? '')?.load();
  }
  if (session.value === 'unknown') await findSession();
  if (root) render(html`<${App} />`, root);
}

void start();
