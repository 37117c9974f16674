// Shows the OpenAPI document of this server in Swagger UI, which an earlier script has defined.

/** The address of this server, as this page has reached it. */
const base = new URL('..', import.meta.url).href;

const dark = matchMedia('(prefers-color-scheme: dark)');
const followScheme = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', followScheme);
followScheme();

const response = await fetch(new URL('openapi.json', base));
/** @type {unknown} */
const openapi = await response.json();
// Requests go to the origin of this page: its policy allows no other.
const servers = [{ url: base.replace(/\/$/, '') }];

SwaggerUIBundle({
  spec: typeof openapi === 'object' ? { ...openapi, servers } : openapi,
  domNode: document.getElementById('reference'),
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: -1,
  filter: true,
  // Nothing is sent to the public validator, and a link to this page cannot change its settings.
  validatorUrl: null,
  queryConfigEnabled: false,
  // The page has a heading of its own.
  plugins: [{ wrapComponents: { InfoContainer: () => () => null } }],
});
