// Shows the OpenAPI document of this server in Swagger UI, which an earlier script has defined.

/** The address of this server, as this page has reached it. */
const base = new URL('..', import.meta.url).href;

const dark = matchMedia('(prefers-color-scheme: dark)');
const followScheme = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', followScheme);
followScheme();

/**
 * Gives a component of the viewer a label for people who do not see it.
 * @param {string} label
 */
function labelled(label) {
  /** @param {unknown} Original @param {{ React: { createElement(type: unknown, props: object): unknown } }} system */
  return (Original, { React }) =>
    (/** @type {object} */ props) =>
      React.createElement(Original, { ...props, 'aria-label': label });
}

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
  // The default's numbers are too faint.
  syntaxHighlight: { theme: 'tomorrow-night' },
  // Nothing is sent to the public validator, and a link to this page cannot change its settings.
  validatorUrl: null,
  queryConfigEnabled: false,
  plugins: [
    {
      wrapComponents: {
        // The page has a heading of its own, and requests go to its own server.
        InfoContainer: () => () => null,
        ServersContainer: () => () => null,
        // The field of a request's body has no label.
        TextArea: labelled('Request body'),
      },
    },
  ],
});
