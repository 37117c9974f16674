/** The paths below the issuer that `oidc-provider` serves. */
export const ROUTES = {
  authorization: '/authorize',
  token: '/token',
  registration: '/register',
  revocation: '/revoke',
  jwks: '/jwks',
} as const;
/** Also below the issuer, for clients that look there. */
export const METADATA_PATH = '/.well-known/oauth-authorization-server';

/** Where the metadata of a protected resource is (RFC 9728 §3.1), followed by the path of the resource. */
export const RESOURCE_METADATA_PATH = '/.well-known/oauth-protected-resource';
