type Json = Record<string, unknown>;

interface Operation {
  readonly summary: string;
  readonly description: string;
  readonly parameters?: readonly Parameter[];
  readonly security?: readonly Json[];
  readonly requestBody?: Content;
  readonly responses: Record<string, { readonly description: string } & Content>;
}
interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required: boolean;
  readonly description?: string;
  readonly schema?: { readonly description?: string };
}
interface Content {
  readonly content?: Record<string, { readonly schema: Json }>;
}

interface ApiDocument {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly paths: Readonly<Record<string, Json>>;
  readonly components: { readonly schemas: { readonly Problem: Json } };
}

/**
 * Renders the reference at `/docs` from the OpenAPI document: one static page without scripts or external resources. (The
 * usual viewers are megabytes of script or load it from a third party.)
 */
export function docsPage({ info, paths, components }: ApiDocument): string {
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => section(method, path, operation as Operation)),
  );
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escape(info.title)} API</title><style>${STYLE}</style></head><body><main>
<h1>${escape(info.title)} API <small>${escape(info.version)}</small></h1>
<p>${escape(info.description)} Every endpoint under <code>/v1</code> needs the header <code>X-API-Key</code>. The machine-readable form is
<a href="/openapi.json">/openapi.json</a>; MCP clients connect to <code>/mcp</code>.</p>
${operations.join('\n')}
<section><h2>Errors</h2><p>Problem details (RFC 9457), as <code>application/problem+json</code>.</p>${details('Members', components.schemas.Problem)}</section>
${MCP_SECTION}
</main></body></html>`;
}

/** Describes the MCP endpoints, which OpenAPI cannot. */
const MCP_SECTION = `<section><h2>MCP endpoints</h2>
<p><code class="route">POST /mcp</code></p><p>Streamable HTTP, protocol revisions 2024-10-07 to 2026-07-28, with two tools over the whole catalogue:
<code>search_servers</code> and <code>call_remote_tool</code> (and <code>read_remote_tool</code>, where it is switched on).</p>
<p><code class="route">/mcp/{server_id}</code></p><p>One server of the catalogue as it is, with its own tools, resources and prompts: POST, and GET and DELETE
where the server has them.</p>
<p>Both take <code>X-API-Key</code>, or the key as a Bearer token, and <code>Switchboard-Timeout-Ms</code>; refusals of Switchboard's own are JSON-RPC errors
in <code>application/json</code>.</p></section>`;

function section(method: string, path: string, operation: Operation): string {
  const rows = Object.entries(operation.responses).map(
    ([status, response]) => `<tr><td>${status}</td><td>${inlineCode(response.description)}</td></tr>`,
  );
  return `<section><h2>${escape(operation.summary)}</h2>
<p><code class="route">${method.toUpperCase()} ${escape(path)}</code></p><p>${escape(operation.description)}</p>
${parameterTable(operation)}${schemaBlock('Body', operation.requestBody)}${schemaBlock('Answer', operation.responses['200'])}
<table><thead><tr><th>Status</th><th>Meaning</th></tr></thead><tbody>${rows.join('')}</tbody></table></section>`;
}

/** The Authorization header is a security scheme in OpenAPI, but a parameter for readers. */
const AUTHORIZATION: Parameter = {
  name: 'Authorization',
  in: 'header',
  required: false,
  description: '`Bearer` and the identity token of the end user: for servers that act for end users.',
};

function parameterTable({ parameters = [], security = [] }: Operation): string {
  const takesToken = security.some(scheme => 'identityToken' in scheme);
  const rows = [...parameters, ...(takesToken ? [AUTHORIZATION] : [])].map(
    ({ name, in: place, required, description, schema }) =>
      `<tr><td><code>${escape(name)}</code></td><td>${place}, ${required ? 'required' : 'optional'}</td><td>${inlineCode(description ?? schema?.description ?? '')}</td></tr>`,
  );
  if (rows.length === 0) return '';
  return `<table><thead><tr><th>Parameter</th><th>In</th><th>Meaning</th></tr></thead><tbody>${rows.join('')}</tbody></table>`;
}

function schemaBlock(title: string, holder: Content | undefined): string {
  const schema = holder?.content?.['application/json']?.schema;
  return schema ? details(title, schema) : '';
}

const details = (title: string, schema: Json) =>
  `<details><summary>${title}</summary><pre>${escape(JSON.stringify(schema, null, 2))}</pre></details>`;

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escape = (text: string) => text.replace(/[&<>"]/g, character => ENTITIES[character] ?? character);
const inlineCode = (text: string) => escape(text).replace(/`([^`]*)`/g, '<code>$1</code>');

const STYLE = `:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:0}main{max-width:52rem;margin:auto;padding:1rem}
section{border-top:1px solid #8886;padding:.5rem 0 1rem}code,pre{font:.9em ui-monospace,monospace}.route{font-weight:600}
pre{overflow:auto;background:#8881;padding:.75rem}table{border-collapse:collapse;margin-top:.75rem}td,th{text-align:left;padding:.2rem 1rem .2rem 0;vertical-align:top}`;
