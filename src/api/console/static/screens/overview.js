import { useEffect, useState } from 'preact/hooks';
import { ask, hrefOf, html, useLoaded } from '../lib.js';
import { Bar, Empty, Loaded, Screen, Section, State, Table, Trouble } from '../parts.js';
import { counted, duration, HEALTH, listed, number, REFUSALS, said, share, short, usedUp } from '../words.js';

const EVERY_MS = 15_000;

/** The API's counts of a kind of requests since the start of the program. @typedef {{ count: number, p50_ms: number | null, p95_ms: number | null, buckets: readonly { le_ms: number | null, count: number }[] }} Traffic */

/**
 * Calls counted at a time, since the start of the program.
 * @typedef {{ at: number, count: number, failed: number }} Poll
 */
const WINDOW_MS = 60_000;
/** @type {{ since: string, polls: readonly Poll[] }} */
let seen = { since: '', polls: [] };

/** Returns the overview, and the calls of the last minute as far as this page knows. @param {AbortSignal} signal */
async function readOverview(signal) {
  const data = await ask('overview', { signal });
  const { since, calls } = data.traffic;
  const at = Date.now();
  const earlier = seen.since === since ? seen.polls.filter(poll => at - poll.at <= WINDOW_MS + EVERY_MS) : [];
  seen = { since, polls: [...earlier, { at, count: calls.count, failed: calls.failed }] };
  const [first] = seen.polls;
  const minutes = first ? (at - first.at) / 60_000 : 0;
  const now =
    first && minutes > 0
      ? { rate: (calls.count - first.count) / minutes, failed: calls.failed - first.failed }
      : undefined;
  return { ...data, now };
}

export default function Overview() {
  const overview = useLoaded(signal => readOverview(signal), [], { everyMs: EVERY_MS });
  return html`<${Screen}
    title="Overview"
    lead=${overview.data && `Version ${overview.data.version}, running since ${dayTime(overview.data.traffic.since)}.`}
    actions=${html`<a class="button" href=${hrefOf('search')}>Try a search</a>`}
  >
    <${Loaded} from=${overview}>
      ${(/** @type {any} */ data) =>
        html`<${Degraded} ...${data} /><${Figures} ...${data} />
          <div class="columns"><${Days} days=${data.days} /><${Times} calls=${data.traffic.calls} /></div>
          <div class="columns">
            <div class="column"><${NextSteps} setup=${data.setup} unchecked=${data.servers.by_status.unvisited ?? 0} /><${Health} servers=${data.servers} /></div>
            <div class="column"><${TopServers} servers=${data.top_servers} /><${Errors} calls=${data.traffic.calls} errors=${data.traffic.errors} /><${Refusals} refusals=${data.traffic.refusals} /></div>
          </div>`}
    <//>
  <//>`;
}

const DAY_TIME = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'short' });
const dayTime = (/** @type {string} */ at) => DAY_TIME.format(new Date(at));

/** @type {Record<string, import('../words.js').Said>} */
const STATUS = {
  ready: { word: 'Ready', tone: 'good' },
  starting: { word: 'Starting: the catalogue is still loading', tone: 'warn' },
  stopping: { word: 'Stopping', tone: 'warn' },
};

/** @param {{ status: string, degraded: readonly string[] }} props */
const Degraded = ({ status, degraded }) =>
  status === 'ready' && degraded.length === 0
    ? undefined
    : html`<div class="callout warn" role="status">
        ${status !== 'ready' && html`<p><${State} said=${said(STATUS, status)} /></p>`}
        ${degraded.map(text => html`<p key=${text}><strong>Degraded:</strong> ${text}</p>`)}
      </div>`;

/** @param {any} props */
function Figures({ status, degraded, servers, traffic, days, now }) {
  const today = days.at(-1) ?? { calls: 0, failed: 0, searches: 0 };
  const { calls, searches } = traffic;
  const isWell = status === 'ready' && degraded.length === 0;
  const state = isWell
    ? STATUS['ready']
    : { word: status === 'ready' ? 'Degraded' : 'Not ready', tone: 'warn' };
  return html`<dl class="figures">
    <${Figure}
      term="State"
      value=${html`<${State} said=${state} />`}
      more=${degraded.length === 0 ? 'Every part works' : counted(degraded.length, 'part')}
    />
    <${Figure} term="Servers" value=${number(servers.active)} more=${counted(servers.tools, 'tool')} />
    <${Figure} term="Calls today" value=${short(today.calls)} more=${failedWords(today)} />
    <${Figure}
      term="Calls a minute"
      value=${short(Math.round(now ? now.rate : meanRate(traffic)))}
      more=${now ? failedNow(now.failed) : 'Since the start'}
    />
    <${Figure}
      term="Calls, p95"
      value=${calls.p95_ms === null ? '–' : duration(calls.p95_ms)}
      more=${calls.p50_ms === null ? 'None since the start' : `Half within ${duration(calls.p50_ms)}`}
    />
    <${Figure}
      term="Searches today"
      value=${short(today.searches)}
      more=${searches.p95_ms === null ? 'None since the start' : `p95 ${duration(searches.p95_ms)}`}
    />
  </dl>`;
}

/** Returns the calls a minute since the start, which says most until there are two readings. @param {{ since: string, calls: { count: number } }} traffic */
const meanRate = ({ since, calls }) =>
  (60_000 * calls.count) / Math.max(60_000, Date.now() - Date.parse(since));

/** @param {{ calls: number, failed: number }} day */
const failedWords = ({ calls, failed }) =>
  failed === 0
    ? 'None failed'
    : html`<span class="bad">${short(failed)} failed (${share(failed / Math.max(calls, 1))})</span>`;

/** @param {number} failed */
const failedNow = failed =>
  failed === 0 ? 'None failed' : html`<span class="bad">${number(failed)} failed</span>`;

/** @param {{ term: string, value: unknown, more: unknown }} props */
const Figure = ({ term, value, more }) =>
  html`<div class="figure">
    <dt>${term}</dt>
    <dd><strong>${value}</strong></dd>
    <dd class="quiet">${more}</dd>
  </div>`;

/** Plots, once the library for them is loaded. */
function usePlot() {
  const [Plot, setPlot] = useState(/** @type {any} */ (undefined));
  useEffect(() => {
    void import('../plot.js').then(
      module => setPlot(() => module.default),
      () => undefined,
    );
  }, []);
  return Plot ?? NoPlot;
}

const NoPlot = () => html`<div class="plot"></div>`;

const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', timeZone: 'UTC' });

/** @param {{ days: readonly { day: string, calls: number, failed: number, searches: number }[] }} props */
function Days({ days }) {
  const Plot = usePlot();
  const total = days.reduce((sum, { calls }) => sum + calls, 0);
  const failed = days.reduce((sum, day) => sum + day.failed, 0);
  return html`<${Section} title="Calls of the last 30 days">
    <${Plot}
      summary=${`${counted(total, 'call')} in 30 days, of which ${number(failed)} failed.`}
      what="Day"
      labels=${days.map(({ day }) => DAY.format(new Date(day)))}
      series=${[
        { label: 'Calls', color: 'accent', values: days.map(({ calls }) => calls) },
        { label: 'Failed', color: 'danger', values: days.map(day => day.failed) },
      ]}
    />
  <//>`;
}

/** Shows how long calls take: a column for each range of durations. @param {{ calls: Traffic }} props */
function Times({ calls: { buckets, count, p50_ms, p95_ms } }) {
  const Plot = usePlot();
  const counts = buckets.map((bucket, at) => bucket.count - (buckets[at - 1]?.count ?? 0));
  const shown = counts.findLastIndex(own => own > 0) + 1;
  const labels = buckets
    .slice(0, shown)
    .map(({ le_ms }) => (le_ms === null ? 'longer' : `≤ ${duration(le_ms)}`));
  const title = 'Duration of calls since the start';
  if (count === 0)
    return html`<${Section} title=${title}>
      <${Empty} title="No call yet.">
        Open a server in the <a href=${hrefOf('catalogue', { access_status: 'open' })}>catalogue</a> and try
        one of its tools.
      <//>
    <//>`;
  return html`<${Section} title=${title}>
    <${Plot}
      summary=${`Half of ${counted(count, 'call')} took at most ${duration(p50_ms ?? 0)}, 95 % at most ${duration(p95_ms ?? 0)}.`}
      what="Duration"
      labels=${labels}
      series=${[{ label: 'Calls', color: 'accent', values: counts.slice(0, shown) }]}
    />
  <//>`;
}

/**
 * Things left to do, by kind: the words for it and where it is done.
 * @type {Record<string, { title: string, href: (ids: readonly string[]) => string, word: string }>}
 */
const STEPS = {
  no_servers: { title: 'The catalogue is empty', href: () => hrefOf('catalogue'), word: 'Add a server' },
  oauth_client_missing: {
    title: 'Sign-ins that want an OAuth app',
    href: () => hrefOf('setup'),
    word: 'Set up apps',
  },
  provider_missing: {
    title: 'Identity providers that are not configured',
    href: () => hrefOf('setup'),
    word: 'Set up providers',
  },
  provider_origin_missing: {
    title: 'Servers that a provider does not allow',
    href: () => hrefOf('setup'),
    word: 'See providers',
  },
  suspicious_tools: {
    title: 'Tools whose text may mislead a model',
    href: () => hrefOf('catalogue', { tools: 'suspicious' }),
    word: 'Look at them',
  },
  quota_used_up: {
    title: 'Keys with a used-up quota',
    href: () => hrefOf('keys'),
    word: 'See keys',
  },
  unreachable: {
    title: 'Servers that do not answer',
    href: () => hrefOf('catalogue', { health: 'unreachable' }),
    word: 'See which',
  },
};

const KEYS_READ = 1_000;
const WANTED = { access_kind: 'credentials', access_status: 'connect' };

/** Returns the step for keys whose requests are refused; none if all have some quota left. @param {AbortSignal} signal */
async function quotaSteps(signal) {
  const { keys } = await ask('keys', { query: { state: 'active', limit: KEYS_READ }, signal });
  const spent = keys.filter((/** @type {any} */ key) => usedUp(key).length > 0);
  if (spent.length === 0) return [];
  const names = spent.slice(0, 3).map((/** @type {any} */ { name }) => `“${name}”`);
  const more = spent.length > names.length ? [`${number(spent.length - names.length)} more`] : [];
  const detail = `The quota of ${listed([...names, ...more])} is used up. Further requests are refused until next month (UTC), or until you raise it.`;
  return [{ kind: 'quota_used_up', count: spent.length, detail, ids: [] }];
}

/** Shows what may be left to do, although nothing is wrong. @param {{ unchecked: number }} props */
function Possible({ unchecked }) {
  const wanted = useLoaded(signal => ask('catalogue', { query: { ...WANTED, limit: 1 }, signal }), []);
  const { total = 0 } = wanted.data ?? {};
  if (total === 0 && unchecked === 0) return undefined;
  return html`<ul class="rows">
    ${
      total > 0 &&
      html`<li>
        <div class="between">
          <span>Servers that want a key</span><a href=${hrefOf('catalogue', WANTED)}>${number(total)}</a>
        </div>
        <p class="quiet">Calls to them work once you or a user enters one.</p>
      </li>`
    }
    ${
      unchecked > 0 &&
      html`<li>
        <div class="between">
          <span>Servers that were never checked</span
          ><a href=${hrefOf('catalogue', { health: 'unvisited' })}>${number(unchecked)}</a>
        </div>
        <p class="quiet">
          <code>npx switchboard catalogue probe</code> checks whether they answer. The setting${' '}
          <code>SWITCHBOARD_PROBE_EVERY</code> makes that regular.
        </p>
      </li>`
    }
  </ul>`;
}

/** @param {{ setup: readonly { kind: string, count: number, detail: string, ids: readonly string[] }[], unchecked: number }} props */
function NextSteps({ setup, unchecked }) {
  const quotas = useLoaded(quotaSteps, [], { everyMs: 4 * EVERY_MS });
  const steps = [...setup.filter(({ kind }) => kind !== 'degraded'), ...(quotas.data ?? [])];
  return html`<${Section} title="What needs your attention">
    ${
      steps.length === 0
        ? quotas.data && html`<p>No sign-in lacks its setup, and no key has used up its quota.</p>`
        : html`<ul class="rows">
            ${steps.map(({ kind, count, detail, ids }) => {
              const step = STEPS[kind];
              return html`<li key=${kind}>
                <div class="between">
                  <strong
                    >${step?.title ?? kind}${count > 1 && html` <span class="quiet">${number(count)}</span>`}</strong
                  >
                  ${step && html`<a href=${step.href(ids)}>${step.word}</a>`}
                </div>
                <p class="quiet">${detail}</p>
              </li>`;
            })}
          </ul>`
    }
    ${quotas.problem && quotas.problem.status !== 0 && html`<${Trouble} problem=${quotas.problem} onRetry=${quotas.reload} />`}
    <${Possible} unchecked=${unchecked} />
  <//>`;
}

/** @param {{ servers: readonly { server_id: string, name: string | null, calls: number, failed: number }[] }} props */
function TopServers({ servers }) {
  const most = Math.max(1, ...servers.map(({ calls }) => calls));
  return html`<${Section} title="Most called servers, 7 days">
    ${
      servers.length === 0
        ? html`<${Empty} title="No call in the last 7 days.">
            Connect an agent to <code>${new URL('../mcp', location.href).href}</code>, or${' '}
            <a href=${hrefOf('search')}>try a search</a>.
          <//>`
        : html`<${Table}
            caption="Most called servers"
            rows=${servers}
            keyOf=${(/** @type {any} */ one) => one.server_id}
            columns=${[
              {
                head: 'Server',
                cell: (/** @type {any} */ one) =>
                  html`<a href=${hrefOf(['catalogue', one.server_id])}>${one.name ?? one.server_id}</a
                    ><${Bar} value=${one.calls} of=${most} />`,
              },
              { head: 'Calls', class: 'num', cell: (/** @type {any} */ one) => number(one.calls) },
              {
                head: 'Failed',
                class: 'num',
                cell: (/** @type {any} */ one) =>
                  html`<span class=${one.failed > 0 ? 'bad' : 'quiet'}>${number(one.failed)}</span>`,
              },
            ]}
          />`
    }
  <//>`;
}

/** @param {{ servers: { active: number, by_status: Record<string, number> } }} props */
function Health({ servers: { active, by_status } }) {
  const states = ['ok', 'needs_sign_in', 'unvisited', 'not_mcp', 'unreachable'];
  return html`<${Section} title="Servers by their last health check">
    <ul class="rows">
      ${states.map(state => {
        const count = by_status[state] ?? 0;
        const { word, tone, help } = said(HEALTH, state);
        return html`<li key=${state}>
          <div class="between">
            <a href=${hrefOf('catalogue', { health: state })} title=${help}>${word}</a
            ><span>${number(count)}</span>
          </div>
          <${Bar} value=${count} of=${active} tone=${tone} />
        </li>`;
      })}
    </ul>
  <//>`;
}

/** @param {{ calls: Traffic, errors: readonly { code: string, count: number }[] }} props */
function Errors({ calls: { count }, errors }) {
  return html`<${Section} title="Errors of calls since the start">
    ${
      errors.length === 0
        ? html`<${Empty} title=${count === 0 ? 'No call yet.' : 'No call failed.'} />`
        : html`<${Table}
            caption="Errors of calls"
            rows=${errors}
            keyOf=${(/** @type {any} */ one) => one.code}
            columns=${[
              { head: 'Error', cell: (/** @type {any} */ one) => html`<code>${one.code}</code>` },
              { head: 'Calls', class: 'num', cell: (/** @type {any} */ one) => number(one.count) },
              {
                head: 'Share',
                class: 'num',
                cell: (/** @type {any} */ one) => share(one.count / Math.max(count, 1)),
              },
            ]}
          />`
    }
  <//>`;
}

/** @param {{ refusals: readonly { code: string, limit: string | null, count: number }[] }} props */
const Refusals = ({ refusals }) =>
  html`<${Section}
    title="Refused requests since the start"
    actions=${html`<a href=${hrefOf('activity', { event: 'request_refused' })}>By key</a>`}
  >
    ${
      refusals.length === 0
        ? html`<${Empty} title="No request was refused." />`
        : html`<${Table}
            caption="Refused requests"
            rows=${refusals}
            keyOf=${(/** @type {any} */ { code, limit }) => `${code} ${limit}`}
            columns=${[
              {
                head: 'Because',
                cell: (/** @type {any} */ { code, limit }) =>
                  html`${REFUSALS[code] ?? code}${limit !== null && html`: <code class="quiet">${limit}</code>`}`,
              },
              { head: 'Requests', class: 'num', cell: (/** @type {any} */ { count }) => number(count) },
            ]}
          />`
    }
  <//>`;
