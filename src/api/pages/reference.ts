import { addHeaders, sendText } from '../http/request.ts';
import { html, type Html } from './page.ts';
import { route, type Routes } from './page-router.ts';

interface Options {
  readonly version: string;
  /** The public path prefix of this service: '' or for instance `/switchboard`. */
  readonly base: string;
}

/** Serves the reference at `/docs`: Swagger UI from its package (docs/decisions/0005-swagger-ui.md), and prose about the MCP endpoints. */
export function referenceRoutes(routes: Routes, options: Options): void {
  const page = referencePage(options).text;
  route(routes, '/docs', {
    get({ response }) {
      addHeaders(response, HEADERS);
      sendText(response, 200, 'text/html', page);
    },
  });
}

const HEADERS = {
  'Content-Security-Policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    // The viewer's style sheet has its icons in itself.
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'X-Content-Type-Options': 'nosniff',
};

const referencePage = ({ version, base }: Options): Html =>
  html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="robots" content="noindex" />
        <title>Switchboard API</title>
        <link rel="icon" href="${base}/assets/icon.svg" type="image/svg+xml" />
        <link rel="stylesheet" href="${base}/assets/swagger-ui.css" />
        <link rel="stylesheet" href="${base}/assets/reference.css" />
        <script src="${base}/assets/swagger-ui-bundle.js" defer></script>
        <script type="module" src="${base}/assets/reference.js"></script>
      </head>
      <body>
        <header>
          <h1>Switchboard API <small>${version}</small></h1>
          <p>
            Every endpoint under <code>/v1</code> needs the header <code>X-API-Key</code>. Choose Authorize
            and enter your key once; this page forgets it when it is closed. “Try it out” then sends requests
            to this server.
          </p>
          <p>
            <a href="#mcp">MCP endpoints</a> · <a href="${base}/openapi.json">OpenAPI document</a> ·
            <a href="${base}/">Home</a>
          </p>
          <h2>REST endpoints</h2>
        </header>
        <div id="reference">
          <p>
            The list of endpoints needs JavaScript.
            <a href="${base}/openapi.json">The OpenAPI document</a> has the same for programs.
          </p>
        </div>
        ${MCP}
      </body>
    </html> `;

/** Describes the MCP endpoints, which OpenAPI cannot. */
const MCP = html`<section id="mcp">
  <h2>MCP endpoints</h2>
  <h3><code>POST /mcp</code></h3>
  <p>
    Streamable HTTP, protocol revisions 2024-10-07 to 2026-07-28, with two tools over the whole catalogue:
    <code>search_servers</code> and <code>call_remote_tool</code> (and <code>read_remote_tool</code>, if it is
    enabled).
  </p>
  <h3><code>/mcp/{server_id}</code></h3>
  <p>
    One server of the catalogue as it is, with its own tools, resources and prompts: POST, and GET and DELETE
    if the server has them.
  </p>
  <p>
    Both take <code>X-API-Key</code>, or the key as a Bearer token, and <code>Switchboard-Timeout-Ms</code>.
    Refusals of Switchboard’s own are JSON-RPC errors in <code>application/json</code>.
  </p>
</section>`;
