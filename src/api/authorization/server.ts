import type { ServerResponse } from 'node:http';
import type { Request } from 'express';
import type { Provider } from 'oidc-provider';
import { mcpScopesIn } from '../../core/identity/grants/scopes.ts';
import { asker } from './asker.ts';
import type { AuthorizationParts } from './provider.ts';
import { METADATA_PATH } from './paths.ts';
import { findResource, scopesOf } from './resources.ts';

/** The authorization server in this process. It is loaded with the first request, and created anew when the signing key changes. */
export class AuthorizationServer {
  readonly #parts: AuthorizationParts;
  #created: { readonly kid: string; readonly provider: Promise<Provider> } | undefined;

  constructor(parts: AuthorizationParts) {
    this.#parts = parts;
  }

  async provider(): Promise<Provider> {
    const kid = await this.#parts.grants.signingKeyId();
    if (this.#created?.kid !== kid) {
      const provider = import('./provider.ts').then(({ createProvider }) => createProvider(this.#parts));
      this.#created = { kid, provider };
      // The next request tries again.
      provider.catch(() => (this.#created = undefined));
    }
    return this.#created.provider;
  }

  /** Serves the metadata of the server, at whatever well-known path it was asked for. */
  serveMetadata(request: Request, response: ServerResponse): Promise<void> {
    return this.serve(request, response, METADATA_PATH);
  }

  /**
   * Serves a request as one to the public address.
   * @param target the path below the issuer, with the query
   */
  async serve(request: Request, response: ServerResponse, target: string): Promise<void> {
    const provider = await this.provider();
    const { host, protocol, pathname } = new URL(this.#parts.grants.issuer);
    const { headers } = request;
    headers.host = host;
    headers['x-forwarded-proto'] = protocol.slice(0, -1);
    for (const name of ['x-forwarded-for', 'x-forwarded-host']) delete headers[name];
    // Browsers of any origin may use it: no cookie counts at these endpoints. The router has allowed it already.
    delete headers.origin;
    request.url = target;
    Object.assign(request, { originalUrl: `${pathname}${target}` });
    await this.for(request, () => provider.callback()(request, response));
  }

  /** Does some work, which may fetch something that a client names, within the limits of the client's address. */
  for<Result>({ ip = '' }: Request, work: () => Promise<Result>): Promise<Result> {
    return asker.run(ip, work);
  }

  /** Completes an authorization request: clients that ask for no scope of ours get all of the resource. */
  completed(target: string): string {
    const { publicUrl } = this.#parts;
    const { pathname, searchParams: query } = new URL(target, publicUrl);
    // The page that leads back to a client has no script that could send a form.
    query.delete('response_mode');
    const resource = findResource(publicUrl, query.get('resource') ?? `${publicUrl}/mcp`);
    if (resource) {
      const served = scopesOf(resource);
      const asked = mcpScopesIn(query.get('scope') ?? '').filter(name => served.includes(name));
      query.set('scope', (asked.length > 0 ? asked : served).join(' '));
    }
    return `${pathname}?${query.toString()}`;
  }
}
