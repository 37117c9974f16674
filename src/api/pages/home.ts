import type { Request } from 'express';
import type { Core } from '../../core/core.ts';
import { html, sendPage, type Html, type Page } from './page.ts';
import { route, type Routes } from './page-router.ts';

interface Options {
  readonly core: Pick<Core, 'readiness' | 'identity'>;
  readonly version: string;
  readonly publicUrl: string | undefined;
}

/**
 * Serves `/`: what this is, whether it is ready, and how to connect, without anything that needs a key to know. It is a page for
 * clients that prefer HTML to JSON, as browsers do, and JSON for all others: a curl without a preference is for a terminal or a program.
 */
export function homeRoutes(routes: Routes, { core, version, publicUrl }: Options): void {
  route(routes, '/', {
    get({ request, response }) {
      const hasSignIn = core.identity.grants !== undefined;
      const facts = { version, ...core.readiness(), urls: urlsAt(publicUrl ?? originOf(request)) };
      response.vary('Accept');
      if (request.accepts(['json', 'html']) === 'html')
        return sendPage(response, homePage({ ...facts, hasSignIn }));
      response.set('Cache-Control', 'no-store').json({ name: 'Switchboard', ...facts });
    },
  });
}

type Facts = ReturnType<Core['readiness']> & {
  readonly version: string;
  readonly urls: Urls;
  /** true: clients can connect by the address alone. */
  readonly hasSignIn: boolean;
};
type Urls = ReturnType<typeof urlsAt>;

const urlsAt = (base: string) => ({
  home: base,
  mcp: `${base}/mcp`,
  api: `${base}/v1`,
  docs: `${base}/docs`,
  openapi: `${base}/openapi.json`,
  console: `${base}/console`,
  connections: `${base}/manage`,
  health: `${base}/healthz`,
  ready: `${base}/readyz`,
});

/**
 * Returns the address by which the caller has reached this server. The address it listens on may not work for the caller, for instance
 * outside its container. The host was checked.
 */
const originOf = ({ secure, headers: { host } }: Request): string =>
  URL.parse(`${secure ? 'https' : 'http'}://${host}`)?.origin ?? 'http://localhost';

/** Stands for the API key in the snippets. */
const KEY = 'YOUR_KEY';

/** Returns the address of a file of ours. */
const assetAt = (home: string, name: string): string =>
  `${new URL(home).pathname.replace(/\/$/, '')}/assets/${name}`;

const homePage = ({ version, status, degraded, urls, hasSignIn }: Facts): Page => ({
  title: 'Switchboard',
  heading: html`Switchboard <small>${version}</small>`,
  isWide: true,
  icon: assetAt(urls.home, 'icon.svg'),
  script: assetAt(urls.home, 'copy.js'),
  body: html` <p>
      One MCP server in front of all the others. An agent says in plain words what it needs; Switchboard finds
      the right remote MCP server and tool in its catalogue, and makes the call.
    </p>
    ${statusNote(status, degraded)}
    <h2>Connect a client</h2>
    <p>The address is <code>${urls.mcp}</code> (Streamable HTTP).</p>
    ${
      hasSignIn &&
      html`<p>
        Most clients, such as claude.ai, ChatGPT and those below, need nothing else: your browser opens, and
        you sign in. Or send an API key.
      </p>`
    }
    <p>
      Replace <code>${KEY}</code> with your API key. The first start has printed one; operators create others.
    </p>
    ${clientsAt(urls.mcp).map(
      ({ name, alone, steps }, at) =>
        html`<details class="fold" name="client" ${at === 0 && 'open'}>
          <summary>${name}</summary>
          ${hasSignIn && snippet({ ...alone, where: html`${alone.where}, to sign in` }, `the sign-in of ${name}`)}
          ${steps.map(step => snippet(withKey(step, hasSignIn), `the ${step.holds ?? 'settings'} of ${name}`))}
        </details>`,
    )}
    <h2>Search from a terminal</h2>
    ${snippet({ where: html`In a shell`, code: searchAt(urls.api) }, 'the search')}
    <h2>On this server</h2>
    <ul class="plain links">
      <li><a href="${urls.docs}">API reference</a>: every endpoint, to read and to try</li>
      <li><a href="${urls.openapi}">OpenAPI document</a>: the same for programs</li>
      <li><a href="${urls.console}">Console</a>: administration, for operators</li>
      <li><a href="${urls.connections}">Your connected accounts</a>: the link is in your app</li>
      <li><a href="${urls.ready}">Readiness</a>: the state above, for load balancers</li>
    </ul>`,
});

const STATUS: Readonly<Record<Facts['status'], string>> = {
  ready: 'Ready.',
  starting: 'Starting: the catalogue is being indexed, so searches wait.',
  stopping: 'Stopping: this process will soon take no more requests.',
};

const statusNote = (status: Facts['status'], degraded: readonly string[]): Html =>
  html`<div class="note" role="status">
    <strong>${STATUS[status]}</strong>
    ${
      degraded.length > 0 &&
      html` Some parts work less well than they should:
        <ul>
          ${degraded.map(part => html`<li>${part}</li>`)}
        </ul>`
    }
  </div>`;

interface Step {
  /** Where the code belongs. */
  readonly where: Html;
  readonly code: string;
  /** Default: settings. */
  readonly holds?: string;
}

const IN_SHELL = html`In a shell`;
const inFile = (file: string): Html => html`<span>In <code>${file}</code></span>`;
const json = (value: unknown) => JSON.stringify(value, undefined, 2);

/** Tells the settings with a key from those without one. */
const withKey = (step: Step, isTold: boolean): Step =>
  isTold && step.holds === undefined ? { ...step, where: html`${step.where}, with a key` } : step;

interface ClientSettings {
  readonly name: string;
  /** With the address alone. */
  readonly alone: Step;
  /** With a key. */
  readonly steps: readonly Step[];
}

/** The settings of clients, in the form that each of them documents. */
function clientsAt(url: string): readonly ClientSettings[] {
  const headers = { 'X-API-Key': KEY };
  return [
    {
      name: 'Claude Code',
      alone: {
        where: IN_SHELL,
        code: `claude mcp add --transport http switchboard ${url}\nclaude mcp login switchboard`,
      },
      steps: [
        {
          where: IN_SHELL,
          code: `claude mcp add --transport http switchboard ${url} --header "X-API-Key: ${KEY}"`,
        },
      ],
    },
    {
      name: 'Cursor',
      alone: { where: inFile('~/.cursor/mcp.json'), code: json({ mcpServers: { switchboard: { url } } }) },
      steps: [
        {
          where: inFile('~/.cursor/mcp.json'),
          code: json({ mcpServers: { switchboard: { url, headers } } }),
        },
      ],
    },
    {
      name: 'VS Code',
      alone: {
        where: inFile('.vscode/mcp.json'),
        code: json({ servers: { switchboard: { type: 'http', url } } }),
      },
      steps: [
        {
          where: inFile('.vscode/mcp.json'),
          code: json({
            servers: { switchboard: { type: 'http', url, headers: { 'X-API-Key': '${input:key}' } } },
            inputs: [{ id: 'key', type: 'promptString', password: true, description: 'Switchboard key' }],
          }),
        },
      ],
    },
    {
      name: 'Codex',
      alone: { where: IN_SHELL, code: `codex mcp add switchboard --url ${url}` },
      steps: [
        {
          where: inFile('~/.codex/config.toml'),
          code: `[mcp_servers.switchboard]\nurl = "${url}"\nbearer_token_env_var = "SWITCHBOARD_KEY"`,
        },
        { where: html`In the shell that starts Codex`, code: `export SWITCHBOARD_KEY=${KEY}`, holds: 'key' },
      ],
    },
    {
      name: 'Gemini CLI',
      alone: {
        where: IN_SHELL,
        code: `gemini mcp add --scope user --transport http switchboard ${url}\ngemini   # then: /mcp auth switchboard`,
      },
      steps: [
        {
          where: inFile('~/.gemini/settings.json'),
          code: json({ mcpServers: { switchboard: { httpUrl: url, headers } } }),
        },
      ],
    },
  ];
}

const searchAt = (api: string) => `curl -s ${api}/search -H 'X-API-Key: ${KEY}' \\
  -H 'Content-Type: application/json' -d '{"query":"create an issue in our bug tracker","limit":3}'`;

/** @param name names the code for people who do not see it next to its button */
const snippet = ({ where, code }: Step, name: string): Html =>
  html`<figure data-name="${name}">
    <figcaption>${where}</figcaption>
    <pre><code>${code}</code></pre>
  </figure>`;
