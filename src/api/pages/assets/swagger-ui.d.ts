/** What `swagger-ui-bundle.js` defines. */
declare function SwaggerUIBundle(options: object): void;
