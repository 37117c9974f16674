/** Declares the globals of `swagger-ui-bundle.js`. */
declare function SwaggerUIBundle(options: object): void;
