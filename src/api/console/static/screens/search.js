import { useEffect, useRef, useState } from 'preact/hooks';
import { ask, filter, hrefOf, html, place, useLoaded } from '../lib.js';
import { Bar, Empty, Facts, Loaded, Screen, State, Tag } from '../parts.js';
import { ACCESS, counted, HEALTH, number, said, share, warningText } from '../words.js';

const LIMIT = 10;
const SUGGESTIONS = 8;
const COMPARED = 100;
const TYPING_MS = 250;
const TOOLS = 5;

const EXAMPLES = [
  'create an issue in our bug tracker',
  'find a page of the AWS documentation',
  'send an e-mail to a customer',
];

export default function Search() {
  const { q = '', about = '' } = place.value.filters;
  return html`<${Screen}
    title="Search playground"
    lead="Shows what an agent finds for a request, and what each score is made of."
  >
    <${Question} q=${q} />
    ${
      q === ''
        ? html`<${Empty} title="Describe what an agent wants to do, in plain words.">
            <ul class="tags">
              ${EXAMPLES.map(text => html`<li key=${text}><a class="button small" href=${hrefOf('search', { q: text })}>${text}</a></li>`)}
            </ul>
          <//>`
        : html`<${Hits} q=${q} about=${about} />`
    }
  <//>`;
}

/** @param {{ q: string }} props */
function Question({ q }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    if (input.current) input.current.value = q;
  }, [q]);
  /** @param {SubmitEvent} event */
  const send = event => {
    event.preventDefault();
    filter({ q: input.current?.value.trim(), about: '' });
  };
  return html`<form class="ask" role="search" onSubmit=${send}>
    <label class="unseen" for="q">Request</label>
    <input
      id="q"
      ref=${input}
      type="search"
      autocomplete="off"
      maxlength="1000"
      placeholder="create an issue in our bug tracker"
      data-search="true"
    />
    <button class="first">Search</button>
  </form>`;
}

/** @param {{ q: string, about: string }} props */
function Hits({ q, about }) {
  const found = useLoaded(
    signal =>
      ask('search', {
        method: 'POST',
        body: { query: q, limit: LIMIT, max_tools: TOOLS, explain: true, ...(about === '' ? {} : { about }) },
        signal,
      }),
    [q, about],
  );
  return html`<${Loaded} from=${found}>
    ${(/** @type {any} */ { servers, metadata, about: placement }) =>
      html`<p class="quiet" role="status">
          ${`${counted(servers.length, 'server')} of ${number(metadata.total_candidates)} in ${metadata.latency_ms} ms${
            metadata.cache_hit ? ', from the cache of the last minute' : ''
          }.`}
        </p>
        <${WhyNot} about=${about} placement=${placement?.server_id === about ? placement : undefined} />
        ${
          servers.length === 0
            ? html`<${Empty} title="Nothing matches."><p>${metadata.hint}</p><//>`
            : html`<ol class="hits">
                ${servers.map((/** @type {any} */ server) => html`<${Hit} key=${server.id} server=${server} />`)}
              </ol>`
        }`}
  <//>`;
}

/** A server that wants a sign-in says so by its access. @param {{ status: string } | undefined} health */
const isFailing = health => health?.status === 'unreachable' || health?.status === 'not_mcp';

/** @param {{ server: any }} props */
const Hit = ({ server }) =>
  html`<li class="card hit">
    <div>
      <div class="top">
        <h2><a href=${hrefOf(['catalogue', server.id])}>${server.name}</a></h2>
        <code class="quiet">${server.id}</code>
        <${State} said=${said(ACCESS, server.access.status)} />
        ${isFailing(server.health) && html`<${State} said=${said(HEALTH, server.health.status)} />`}
        ${server.deprecated && html`<${Tag} tone="warn" title=${server.status_message}>Deprecated<//>`}
      </div>
      <p>${server.description}</p>
      ${
        server.tools.length > 0 &&
        html`<details>
          <summary>
            ${`${counted(server.tools.length, 'best tool')}: ${server.tools.map((/** @type {any} */ { name }) => name).join(', ')}`}
          </summary>
          <ul class="tools">
            ${server.tools.map(
              (/** @type {any} */ tool) =>
                html`<li key=${tool.name}>
                  <code>${tool.name}</code>
                  ${(tool.warnings ?? []).map((/** @type {string} */ text) => html` <${Tag} tone="warn">${warningText(text)}<//>`)}
                  <p class="quiet">${tool.description}</p>
                </li>`,
            )}
          </ul>
        </details>`
      }
    </div>
    <${Scores} scores=${server.scores} total=${server.final_score} />
  </li>`;

/** Shows the parts of a score: (meaning + words) × use × reduction. @param {{ scores: any, total: number | null }} props */
const Scores = ({ scores, total }) =>
  html`<dl class="scores">
    <div>
      <dt class="total">Score</dt>
      <dd><${Bar} value=${total ?? 0} /></dd>
      <dd class="total">${total?.toFixed(3) ?? '–'}</dd>
    </div>
    <${Score} term="Meaning" value=${scores.meaning} of=${0.5} />
    <${Score} term="Words" value=${scores.words} of=${0.5} />
    <${Score} term="Use" value=${scores.use} of=${1} times />
    ${scores.reduction < 1 && html`<${Score} term="Reduced" value=${scores.reduction} of=${1} times tone="warn" />`}
  </dl>`;

/** @param {{ term: string, value: number, of: number, times?: boolean, tone?: string }} props */
const Score = ({ term, value, of, times = false, tone }) =>
  html`<div>
    <dt>${term}</dt>
    <dd><${Bar} value=${value} of=${of} tone=${tone} /></dd>
    <dd>${times ? '× ' : ''}${value.toFixed(times ? 2 : 3)}</dd>
  </div>`;

/** @type {Record<string, import('../words.js').Said>} */
const PLACEMENT = {
  shown: { word: 'It is in the list', tone: 'good' },
  below_limit: { word: 'Found, but further down', tone: 'info' },
  not_a_candidate: { word: 'Not among the candidates', tone: 'warn' },
  unanswerable: { word: 'The request matches nothing', tone: 'warn' },
  inactive: { word: 'Deactivated', tone: 'bad' },
  unreachable: { word: 'Unreachable', tone: 'bad' },
  unknown: { word: 'Not in the catalogue', tone: 'bad' },
};

/** Returns servers whose id, name or address has a text, those that begin with it first. @param {string} text @param {AbortSignal} [signal] @returns {Promise<readonly { id: string, name: string }[]>} */
async function namedLike(text, signal) {
  const q = text.trim();
  if (q === '') return [];
  const query = { q, active: 'all', limit: COMPARED };
  const { servers } = await ask('catalogue', { query, ...(signal ? { signal } : {}) });
  const begins = (/** @type {{ id: string, name: string }} */ { id, name }) =>
    [id, name].some(one => one.toLowerCase().startsWith(q.toLowerCase()));
  return servers.toSorted(
    (/** @type {any} */ one, /** @type {any} */ other) => Number(begins(other)) - Number(begins(one)),
  );
}

/** Returns the server that a text means: by its id, by its name, or because there is no other. @param {string} text @param {readonly { id: string, name: string }[]} servers */
function meantBy(text, servers) {
  const wanted = text.toLowerCase();
  const named = servers.filter(({ name }) => name.toLowerCase() === wanted);
  const byId = servers.find(({ id }) => id === wanted);
  return byId ?? (named.length === 1 ? named[0] : servers.length === 1 ? servers[0] : undefined);
}

/** Offers servers with a similar name or id. @param {{ text: string, servers: readonly { id: string, name: string }[] }} props */
const Similar = ({ text, servers }) =>
  servers.length === 0
    ? html`<p><a href=${hrefOf('search', { q: text })}>Search for ${text}</a></p>`
    : html`<p>Which one do you mean?</p>
        <ul class="tags">
          ${servers.slice(0, SUGGESTIONS).map(({ id, name }) => html`<li key=${id}><a class="button small" href=${hrefOf('search', { ...place.value.filters, about: id })}>${name} <code>${id}</code></a></li>`)}
        </ul>`;

/** Answers why a server is not among the hits. @param {{ about: string, placement: any }} props */
function WhyNot({ about, placement }) {
  const [typed, setTyped] = useState(about);
  useEffect(() => setTyped(about), [about]);
  const matches = useLoaded(
    async signal => {
      await new Promise(resolve => setTimeout(resolve, TYPING_MS));
      return signal.aborted ? [] : namedLike(typed, signal);
    },
    [typed],
  );
  /** @param {SubmitEvent} event */
  const send = async event => {
    event.preventDefault();
    const text = typed.trim();
    const found = await namedLike(text).catch(() => []);
    filter({ about: meantBy(text, found)?.id ?? text });
  };
  return html`<details class="card" open=${about !== ''}>
    <summary>Why is a server not there?</summary>
    <form class="ask" onSubmit=${send}>
      <label class="unseen" for="about">Name or id of the server</label>
      <input
        id="about"
        maxlength="128"
        list="about-servers"
        autocomplete="off"
        spellcheck=${false}
        placeholder="Name or id of a server, such as GitHub"
        value=${typed}
        onInput=${(/** @type {InputEvent & { currentTarget: HTMLInputElement }} */ event) => setTyped(event.currentTarget.value)}
      />
      <datalist id="about-servers">
        ${(matches.data ?? []).slice(0, SUGGESTIONS).map((/** @type {any} */ one) => html`<option value=${one.id}>${one.name}</option>`)}
      </datalist>
      <button>Explain</button>
    </form>
    ${
      placement &&
      html`<div class="hit">
        <div>
          <div class="top">
            <h3>${
              placement.outcome === 'unknown'
                ? placement.server_id
                : html`<a href=${hrefOf(['catalogue', placement.server_id])}>${placement.server_id}</a>`
            }</h3>
            <${State} said=${said(PLACEMENT, placement.outcome)} />
          </div>
          <p role="status">${placement.detail}</p>
          ${placement.outcome === 'unknown' && html`<${Similar} text=${about} servers=${matches.data ?? []} />`}
          <${Facts}
            facts=${[
              placement.rank !== null && ['Rank', `${placement.rank} of ${placement.candidates} candidates`],
              placement.scores && [
                'Likeness in meaning',
                `${share(placement.scores.semantic)}, before it is weighed against the words and the other servers`,
              ],
              placement.dead && ['Health', 'Three failed checks in a row halve its score.'],
              placement.deprecated && [
                'Deprecated',
                'Its registry says so, which lowers its score by a fifth.',
              ],
            ]}
          />
        </div>
        ${placement.scores && html`<${Scores} scores=${placement.scores} total=${placement.final_score} />`}
      </div>`
    }
  </details>`;
}
