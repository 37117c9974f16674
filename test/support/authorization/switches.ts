import type { Refreshing } from './grants.ts';

/** How the server differs from one that does everything right. Each can be assigned while it runs. */
export interface Switches {
  /**
   * Where the metadata are: `oauth` at RFC 8414's place, `openid` at OpenID's with the issuer's path inserted, `appended` at
   * OpenID's after the path. Default `oauth`.
   */
  metadataAt: 'oauth' | 'openid' | 'appended';
  /** Members of the metadata in place of the usual ones; undefined leaves one out. */
  metadata: Readonly<Record<string, unknown>>;
  /** Compresses the metadata without being asked to. */
  gzip: boolean;
  /** `none`: there is no registration; `allowlist`: refuses by name, in plain text; `unprocessable`: 422. */
  registration: 'open' | 'none' | 'allowlist' | 'unprocessable';
  /** Default 201. */
  registrationStatus: number;
  /** Members of the answer to a registration in place of the usual ones; undefined leaves one out. */
  registered: Readonly<Record<string, unknown>>;
  /** Offers RFC 7592: registrations can be deleted. */
  managesClients: boolean;
  /** Takes URLs as client ids, and says so. What is at them is in `documents`. */
  clientDocuments: boolean;
  /** Refuses HTTP Basic, whatever the metadata say. */
  refusesBasic: boolean;
  /** What comes back as `iss`. Default `correct`, which the metadata announce. */
  iss: 'correct' | 'missing' | (string & {});
  /** Members of every answer to the browser, over the usual ones. */
  callback: Readonly<Record<string, string>>;
  /** Shows a page with Allow and Deny instead of allowing at once. */
  asks: boolean;
  /** The user says no. */
  denies: boolean;
  /** Scopes that are answered with `invalid_scope`. */
  refusedScopes: readonly string[];
  /** The parameter that scopes are read from. Default `scope`. */
  scopeParameter: string;
  /** What is granted whatever was requested. */
  grantedScopes: readonly string[] | undefined;
  /** `required` wants it in every request; `refused` wants it in none; default `optional`: checked where it is. */
  resource: 'optional' | 'required' | 'refused' | 'ignored';
  refresh: Refreshing;
  /** `expires_in` of tokens; undefined leaves it out. Default 3600. */
  expiresIn: unknown;
  /** Members of the token answer in place of the usual ones; undefined leaves one out. */
  tokenAnswer: Readonly<Record<string, unknown>>;
  /** Default true: RFC 7009. */
  revocation: boolean;
  /** Repeats what it was sent in the descriptions of errors. */
  echo: boolean;
  /** A mix-up: sends browsers on to another server's authorization endpoint, with that server's client id. */
  forwardsTo: { readonly issuer: string; readonly clientId: string } | undefined;
}

export const DEFAULTS: Switches = {
  metadataAt: 'oauth',
  metadata: {},
  gzip: false,
  registration: 'open',
  registrationStatus: 201,
  registered: {},
  managesClients: false,
  clientDocuments: false,
  refusesBasic: false,
  iss: 'correct',
  callback: {},
  asks: false,
  denies: false,
  refusedScopes: [],
  scopeParameter: 'scope',
  grantedScopes: undefined,
  resource: 'optional',
  refresh: 'rotating',
  expiresIn: 3600,
  tokenAnswer: {},
  revocation: true,
  echo: false,
  forwardsTo: undefined,
};
