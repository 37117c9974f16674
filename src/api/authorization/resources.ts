import type { IncomingMessage } from 'node:http';
import type { ExternalIssuer } from '../../config/index.ts';
import type { Grants } from '../../core/identity/grants/grants.ts';
import { MCP_SCOPES } from '../../core/identity/grants/scopes.ts';
import { RESOURCE_METADATA_PATH } from './paths.ts';

const MCP_PATH = /^\/mcp(?:\/([A-Za-z0-9][\w.-]*))?\/?$/;

export interface Resource {
  /** Its address without a trailing slash. */
  readonly url: string;
  readonly path: string;
  /** Undefined: `/mcp` itself. */
  readonly serverId: string | undefined;
}

/** Reads the path of an MCP endpoint: `/mcp`, or `/mcp/{server_id}`. Undefined for any other. */
export function resourceAt(publicUrl: string, path: string): Resource | undefined {
  const [match, serverId] = MCP_PATH.exec(path) ?? [];
  if (match === undefined) return undefined;
  const plain = serverId === undefined ? '/mcp' : `/mcp/${serverId}`;
  return { url: `${publicUrl}${plain}`, path: plain, serverId };
}

/** Returns the MCP endpoint with this address. That of an unknown server is one too, so that nobody learns which exist. */
export function findResource(publicUrl: string, address: string): Resource | undefined {
  const resource = resourceAt(publicUrl, address.slice(publicUrl.length));
  return resource?.url === address ? resource : undefined;
}

/** Returns the scopes that an endpoint takes: one server has no search. */
export const scopesOf = ({ serverId }: Pick<Resource, 'serverId'>): readonly string[] =>
  [...MCP_SCOPES.keys()].filter(name => serverId === undefined || name === 'mcp:call');

/** Returns what the authorization server calls scopes of ours. */
const namesAt = (external: ExternalIssuer | undefined, scopes: readonly string[]): readonly string[] =>
  external ? scopes.map(name => (external.scopes as Record<string, string>)[name] ?? name) : scopes;

interface Refused {
  readonly grants: Pick<Grants, 'publicUrl' | 'external'>;
  readonly request: IncomingMessage;
  readonly path: string;
  readonly status: number;
}

/**
 * Returns the challenge that leads a client to the sign-in (RFC 9728 §5.1). Undefined for a client that has sent a key: it would
 * drop the key and try to sign in.
 */
export function challengeFor({ grants, request, path, status }: Refused): string | undefined {
  const { publicUrl, external } = grants;
  const resource = resourceAt(publicUrl, path);
  const { authorization, 'x-api-key': key } = request.headers;
  const isKey = key !== undefined || (authorization !== undefined && !/^Bearer +ey/i.test(authorization));
  if (!resource || isKey || (status === 403 && authorization === undefined)) return undefined;
  const error =
    status === 403 ? 'insufficient_scope' : authorization === undefined ? undefined : 'invalid_token';
  const parameters = [
    ...(error === undefined ? [] : [`error="${error}"`]),
    `resource_metadata="${metadataUrlOf(publicUrl, resource.path)}"`,
    `scope="${namesAt(external, scopesOf(resource)).join(' ')}"`,
  ];
  return `Bearer ${parameters.join(', ')}`;
}

/** The path of the public address comes after the well-known one, as that of the resource does. */
function metadataUrlOf(publicUrl: string, path: string): string {
  const { origin, pathname } = new URL(publicUrl);
  return `${origin}${RESOURCE_METADATA_PATH}${pathname === '/' ? '' : pathname}${path}`;
}

/** Returns the metadata of a protected resource (RFC 9728 §2). */
export const metadataOf = (
  resource: Resource,
  { issuer, external }: Pick<Grants, 'issuer' | 'external'>,
) => ({
  resource: resource.url,
  authorization_servers: [issuer],
  scopes_supported: namesAt(external, scopesOf(resource)),
  bearer_methods_supported: ['header'],
  resource_name: 'Switchboard',
});
