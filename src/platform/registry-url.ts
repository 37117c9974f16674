/**
 * Returns the base address of a server registry, whichever of its pages was given: without a query, without `/v0.1…` and
 * without a slash at the end. Entries are filed under this address.
 * @throws Error that says what is wrong with the address
 */
export function registryUrl(address: string): string {
  const url = URL.parse(address);
  if (!url || !/^https?:$/.test(url.protocol)) throw new Error('must be an http(s) URL');
  if (url.username !== '' || url.password !== '')
    throw new Error('must not hold a user or password: set the key of the registry instead');
  const path = url.pathname.replace(/\/v0(\.\d+)?(\/servers)?\/?$/, '').replace(/\/+$/, '');
  return `${url.origin}${path}`;
}
