import type { Expected } from './report.ts';
import type { Revision } from './suite.ts';

type OfEach = Readonly<Record<Revision, Expected>>;

const becauseOf = (reason: string, ...keys: readonly string[]): Expected =>
  Object.fromEntries(keys.map(key => [key, reason]));

const tasks = becauseOf(
  'the optional extension io.modelcontextprotocol/tasks, which the server does not offer',
  'tasks-lifecycle',
  'tasks-capability-negotiation',
  'tasks-wire-fields',
  'tasks-request-state-removal',
  'tasks-mrtr-input',
  'tasks-request-headers',
  'tasks-dispatch-and-envelope',
  'tasks-required-task-error',
  'tasks-mrtr-composition',
);

/** The fixture server itself. */
export const EXPECTED_OF_FIXTURE: OfEach = { '2025-11-25': {}, '2026-07-28': tasks };

/** Those that call a tool and look at what it gives, in both revisions. */
export const CONTENT_SCENARIOS = [
  'tools-call-simple-text',
  'tools-call-image',
  'tools-call-audio',
  'tools-call-embedded-resource',
  'tools-call-mixed-content',
  'tools-call-error',
  'tools-call-with-progress',
] as const;

/** Scenarios of 2026-07-28 whose tool asks for input. */
export const INPUT_SCENARIOS = [
  'input-required-result-basic-elicitation',
  'input-required-result-basic-sampling',
  'input-required-result-basic-list-roots',
  'input-required-result-request-state',
  'input-required-result-multiple-input-requests',
  'input-required-result-multi-round',
  'input-required-result-missing-input-response',
  'input-required-result-result-type',
  'input-required-result-tampered-state',
  'input-required-result-capability-check',
  'input-required-result-ignore-extra-params',
] as const;

const faceOfBoth = {
  ...becauseOf(
    'calls a tool of the suite; here an unknown tool is refused, as it should be',
    ...CONTENT_SCENARIOS,
    'json-schema-2020-12:json-schema-2020-12-tool-found',
  ),
  ...becauseOf(
    'prompts, resources and completions, which a server of two tools does not offer',
    'completion-complete',
    'prompts-list',
    'prompts-get-simple',
    'prompts-get-with-args',
    'prompts-get-embedded-resource',
    'prompts-get-with-image',
    'resources-list',
    'resources-read-text',
    'resources-read-binary',
    'resources-templates-read',
  ),
};

const streamsToResume = becauseOf(
  'streams to resume: /mcp keeps no state between requests, which the revision allows',
  'server-sse-polling:server-sse-priming-event',
  'server-sse-polling:server-sse-retry-field',
);

/** Switchboard's own server at /mcp: two tools, and nothing of the suite's own fixture. */
export const EXPECTED_OF_FACE: OfEach = {
  '2025-11-25': {
    ...faceOfBoth,
    ...becauseOf(
      'calls a tool of the suite that asks the client',
      'tools-call-sampling',
      'tools-call-elicitation',
      'elicitation-sep1034-defaults',
      'elicitation-sep1330-enums',
    ),
    ...becauseOf(
      'log messages and subscriptions to resources, which a server of two tools does not offer',
      'logging-set-level',
      'tools-call-with-logging',
      'resources-subscribe',
      'resources-unsubscribe',
    ),
    ...streamsToResume,
  },
  '2026-07-28': {
    ...faceOfBoth,
    ...tasks,
    ...becauseOf(
      'calls a tool or prompt of the suite that asks for input',
      ...INPUT_SCENARIOS,
      'input-required-result-non-tool-request',
    ),
    ...becauseOf(
      'not testable without a diagnostic tool of the suite; the other checks of the scenario pass',
      'server-stateless:sep-2575-server-rejects-undeclared-capability',
      'server-stateless:sep-2575-missing-capability-http-400',
      'server-stateless:sep-2575-http-server-no-independent-requests-on-stream',
      'server-stateless:sep-2575-server-no-log-without-loglevel',
    ),
    ...becauseOf(
      'prompts and resources, which a server of two tools does not offer; the other checks of the scenario pass',
      'caching:sep-2549-prompts-list-caching-hints',
      'caching:sep-2549-resources-list-caching-hints',
      'caching:sep-2549-resources-templates-list-caching-hints',
      'sep-2164-resource-not-found:sep-2164-error-code',
      'sep-2164-resource-not-found:sep-2164-data-uri',
    ),
    ...becauseOf(
      'not testable: neither tool wants an argument repeated in a header',
      'http-custom-header-server-validation',
    ),
  },
};

/** The fixture's tools, called with `call_remote_tool`. */
export const EXPECTED_OF_RELAYED: OfEach = {
  '2025-11-25': {
    ...becauseOf(
      'asks the client while the tool runs, which /mcp cannot do in this revision: it keeps no state between requests',
      'tools-call-sampling',
      'tools-call-elicitation',
      'elicitation-sep1034-defaults',
      'elicitation-sep1330-enums',
    ),
    ...becauseOf('log messages, which /mcp does not relay', 'tools-call-with-logging'),
    ...streamsToResume,
  },
  '2026-07-28': {
    ...becauseOf(
      'the server refuses for want of a capability; here that is a result, so that the model reads what would help',
      'server-stateless:sep-2575-server-rejects-undeclared-capability',
      'server-stateless:sep-2575-missing-capability-http-400',
    ),
    ...becauseOf(
      'sends answers to what it was not asked; here every question comes with a state, and answers without one are left out',
      'input-required-result-ignore-extra-params',
    ),
    ...becauseOf(
      'wrong headers for an argument of the tool: call_remote_tool has none, and Switchboard writes them itself for the server',
      'http-custom-header-server-validation:sep-2243-server-reject-invalid-param-chars',
      'http-custom-header-server-validation:sep-2243-server-reject-param-mismatch',
      'http-custom-header-server-validation:sep-2243-server-validate-param-match',
    ),
  },
};

/** Switchboard as a client, over REST. */
export const EXPECTED_OF_CLIENT: OfEach = { '2025-11-25': {}, '2026-07-28': {} };

const extensions = {
  ...becauseOf(
    'a client that acts for itself with a secret or key of its own; Switchboard acts for users who sign in',
    'auth/client-credentials-jwt',
    'auth/client-credentials-basic',
    'auth/wif-jwt-bearer',
  ),
  ...becauseOf(
    'the token of a company directory in place of a sign-in, which Switchboard does not ask for',
    'auth/enterprise-managed-authorization',
  ),
  ...becauseOf('tokens bound to a key, which Switchboard does not ask for', 'auth/dpop', 'auth/dpop-nonce'),
};

/** Extensions of authorization. */
export const EXPECTED_OF_EXTENSIONS: OfEach = { '2025-11-25': extensions, '2026-07-28': extensions };
