/**
 * The address of a registry in one form, whichever of its pages was given: no query, no `/v0.1…`, no slash at the end. What came
 * from it goes by that.
 * @throws Error that says what is wrong with it
 */
export function registryUrl(address: string): string {
  const url = URL.parse(address);
  if (!url || !/^https?:$/.test(url.protocol)) throw new Error('must be an http(s) URL');
  if (url.username !== '' || url.password !== '')
    throw new Error('must not hold a user or password: a key goes into SWITCHBOARD_REGISTRY_KEYS');
  const path = url.pathname.replace(/\/v0(\.\d+)?(\/servers)?\/?$/, '').replace(/\/+$/, '');
  return `${url.origin}${path}`;
}
