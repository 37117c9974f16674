/** A registration of a client (RFC 7591) is deleted after this time in seconds: at first, and from when a user last met it. */
export const NEW_CLIENT_SEC = 86_400;
export const CLIENT_SEC = 60 * 86_400;
