/** The methods by which Switchboard can authenticate to a token endpoint. */
export const AUTH_METHODS = ['client_secret_basic', 'client_secret_post', 'none'] as const;
export type AuthMethod = (typeof AUTH_METHODS)[number];

/** Names the client that tokens were issued to. It is stored with them, sealed. */
export interface ClientName {
  readonly issuer: string;
  readonly clientId: string;
  /** `preregistered` by the operator, `cimd`: a client id metadata document, `dcr`: registered dynamically (RFC 7591). */
  readonly kind: 'preregistered' | 'cimd' | 'dcr';
  /** The row of `oauth_clients`. Absent: it comes from the settings, or is a document. */
  readonly rowId?: string;
}

/** Switchboard as a client of one authorization server. */
export interface Client extends ClientName {
  readonly secret: string | undefined;
  readonly authMethod: AuthMethod;
  /** Scopes of every sign-in, besides those that the server asks for. */
  readonly scopes?: readonly string[] | undefined;
}

/** The client of a new sign-in. */
export interface SignInClient extends Client {
  /** The address that the authorization server sends the browser back to. */
  readonly redirectUri: string;
}

/** Names the client and the resource that tokens were issued for. It is stored with them, sealed. */
export interface IssuedTo extends ClientName {
  /** RFC 8707; '' where the server's entry says that the authorization server takes none. */
  readonly resource: string;
  /**
   * The host of the token endpoint, where the server's entry says that it is not the metadata's. Until the sign-in has ended,
   * `{domain}` in it stands for what the callback names.
   */
  readonly tokenHost?: string;
}

/** The sealed part of a registration's row. */
export interface StoredClient {
  readonly secret?: string | undefined;
  /** Absent: the best that the authorization server supports. */
  readonly authMethod?: AuthMethod | undefined;
  /** As of the settings, for a client that the operator has entered. */
  readonly scopes?: readonly string[] | undefined;
  readonly allowedOrigins?: readonly string[] | undefined;
}

/** A client as the operator enters it. An absent part stays as it was entered before with the same id; null removes it. */
export interface EnteredClient {
  readonly id: string;
  readonly secret?: string | null | undefined;
  readonly authMethod?: AuthMethod | null | undefined;
  readonly scopes?: readonly string[] | null | undefined;
  readonly allowedOrigins?: readonly string[] | null | undefined;
}

/** Returns the part of an entered client that is sealed. @param before the part that was entered before with the same id */
export const entered = (given: EnteredClient, before: StoredClient): StoredClient => ({
  secret: chosen(given.secret, before.secret),
  authMethod: chosen(given.authMethod, before.authMethod),
  scopes: chosen(given.scopes, before.scopes),
  allowedOrigins: chosen(given.allowedOrigins, before.allowedOrigins),
});

const chosen = <T>(given: T | null | undefined, before: T | undefined): T | undefined =>
  given === undefined ? before : (given ?? undefined);
