import { z } from 'zod';
import { credentialShape } from './credential-schema.ts';

/** Categories of the shipped catalogue. Operators' entries may use any short word. */
export const CATEGORIES = [
  'ai-agents',
  'analytics',
  'blockchain',
  'cloud',
  'code',
  'commerce',
  'communication',
  'crm-sales',
  'databases',
  'design-media',
  'developer-docs',
  'education-research',
  'files-documents',
  'finance',
  'games-entertainment',
  'government-data',
  'health-science',
  'home-lifestyle',
  'marketing-seo',
  'news-social',
  'payments',
  'productivity',
  'security',
  'travel-maps',
  'web-search',
] as const;

const codePoints = (min: number, max: number) =>
  z.string().refine(text => lengthOf(text) >= min && lengthOf(text) <= max, {
    error: `must have ${min} to ${max} characters`,
  });
const lengthOf = (text: string) => Array.from(text).length;

/** The id of Switchboard's own tools for agents, such as reading a stored result. No server has it. */
export const RESERVED_SERVER_ID = 'switchboard';

const serverIdSchema = z
  .string()
  .regex(
    /^[a-z0-9][a-z0-9._-]{0,127}$/,
    'must have 1 to 128 characters from a-z, 0-9, ".", "_" and "-", and start with a letter or digit',
  )
  .refine(
    id => id !== RESERVED_SERVER_ID,
    `must not be "${RESERVED_SERVER_ID}", which is reserved for Switchboard itself`,
  );

/** Effects of a tool as declared by its server (MCP `ToolAnnotations`). They are not verified. */
const annotationsSchema = z.object({
  readOnlyHint: z.boolean().optional(),
  destructiveHint: z.boolean().optional(),
});

const toolSchema = z.object({
  name: codePoints(1, 256),
  description: z.string().max(20_000).default(''),
  input_schema: z.record(z.string(), z.unknown()).default({ type: 'object' }),
  annotations: annotationsSchema.optional(),
});

/** Names under which the kinds of access are stored, and the names that entries may give them. */
const AUTH_KINDS = {
  none: 'none',
  unknown: 'unknown',
  credentials: 'static_header',
  static_header: 'static_header',
  oauth: 'own_oauth',
  own_oauth: 'own_oauth',
  provider: 'user_oauth',
  user_oauth: 'user_oauth',
} as const;

/** Parameters of an authorization request that an entry may add. The others protect the sign-in, or are Switchboard's own. */
const AUTHORIZE_PARAMETERS = [
  'access_type',
  'audience',
  'owner',
  'prompt',
  'duration',
  'token_access_type',
] as const;

/** Fields of an entry of kind `oauth`, for servers that deviate from the specification. */
const oauthShape = {
  /** The issuer of the server's tokens, instead of the one that it publishes. */
  issuer: z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    .max(2_048)
    .optional(),
  /** The parameter that carries the scopes. */
  scope_param: z.enum(['scope', 'user_scope']).optional(),
  token_auth_method: z.enum(['client_secret_basic', 'client_secret_post', 'none']).optional(),
  /** True: the authorization server supports PKCE with S256, but does not say so. */
  assume_pkce: z.boolean().optional(),
  /** The host of the token endpoint, where the callback's parameter `domain` says it. */
  token_host: z
    .string()
    .regex(/^([a-z0-9-]{1,63}\.){0,5}\{domain\}$/, 'must be {domain}, such as api.{domain}')
    .optional(),
  authorize_params: z.partialRecord(z.enum(AUTHORIZE_PARAMETERS), z.string().max(256)).optional(),
};

const authSchema = z
  .object({
    kind: z.enum(Object.keys(AUTH_KINDS) as (keyof typeof AUTH_KINDS)[]).transform(kind => AUTH_KINDS[kind]),
    provider: z.string().min(1).optional(),
    scopes: z.array(z.string()).optional(),
    /** For kind `oauth`, replaces the resource that the server publishes; `omit` sends none (RFC 8707). */
    resource: z.string().optional(),
    ...credentialShape,
    ...oauthShape,
  })
  // Without a provider, calls would carry no user token, and the server would refuse them.
  .refine(({ kind, provider }) => kind !== 'user_oauth' || provider !== undefined, {
    path: ['provider'],
    error: 'provider requires the name of the identity provider whose tokens the server accepts',
  });

const webUrl = z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' });

/** One line of a catalogue file. Unknown fields are dropped and reported once per file by the reader. */
export const entrySchema = z.object({
  id: serverIdSchema,
  name: codePoints(1, 200),
  description: codePoints(1, 4000),
  remote_url: webUrl.max(2048, 'must have at most 2048 characters'),
  transport: z.enum(['streamable-http', 'sse']).optional(),
  auth: authSchema.optional(),
  tools: z.array(toolSchema).max(1000).optional(),
  homepage: webUrl.optional(),
  repository: webUrl.optional(),
  categories: z.array(codePoints(1, 64)).max(20).optional(),
  /** Requests that the server can serve, in users' words: search compares them with queries. */
  examples: z.array(codePoints(1, 200)).max(100).optional(),
  /** Products of others that the server works with: it serves queries that name one of them, unless a server has that name. */
  integrations: z.array(codePoints(1, 64)).max(500).optional(),
});

export type Entry = z.infer<typeof entrySchema>;
export type Tool = z.infer<typeof toolSchema>;
export type Annotations = z.infer<typeof annotationsSchema>;
export type AuthSpec = z.infer<typeof authSchema>;
export type Transport = NonNullable<Entry['transport']>;

/** A tool of a catalogued server, with cleaned texts. */
export interface CataloguedTool extends Tool {
  /** Ids of the suspicion rules that its original texts match; absent: none. */
  readonly suspicious?: readonly string[] | undefined;
  /** Set on a tool that its server lists itself. */
  readonly live?: LiveMark | undefined;
}

interface LiveMark {
  /** Hash of the definition, by `hashOf`. */
  readonly hash: string;
  /** The time at which this definition replaced another live one, in milliseconds; absent: never. */
  readonly changedAt?: number;
}

export const ORIGINS = ['shipped', 'operator', 'registry'] as const;
export type Origin = (typeof ORIGINS)[number];

/** A registry's statements about a server, without its `server.json`. */
export interface RegistryHead {
  /** The registry's address, normalised by `registryUrl`. */
  readonly source: string;
  /** The name in the registry, such as `com.example/notes`. */
  readonly name: string;
  readonly version: string;
  readonly status: 'active' | 'deprecated';
  readonly statusMessage?: string;
  /** RFC 3339, by the registry's clock. */
  readonly publishedAt?: string;
}

export interface RegistryMark extends RegistryHead {
  /** Its `server.json`. */
  readonly document: Readonly<Record<string, unknown>>;
}

/** The short fields of a catalogued remote MCP server, which decide how it is found and called. */
export interface ServerHead {
  readonly id: string;
  readonly name: string;
  readonly remoteUrl: string;
  /** Absent: unknown, detected at the first call. */
  readonly transport?: Transport;
  readonly auth: AuthSpec;
  /** Access as the server itself has shown it at its current address; absent: it has not. */
  readonly learned?: LearnedAccess;
  /** When the server itself last listed its tools, in milliseconds; absent: the tools come from the entry. */
  readonly toolsListedAt?: number;
  readonly origin: Origin;
  readonly registry?: RegistryHead;
  /** See `entrySchema`; absent: none. */
  readonly integrations?: readonly string[];
  readonly active: boolean;
  /** Inactive after 30 days of failed health checks; reactivated by a successful one. */
  readonly unreachable?: true;
}

/** A head in memory. */
export interface HeldServer extends ServerHead {
  readonly toolCount: number;
  readonly exampleCount: number;
  /** The number of tools that match a suspicion rule. */
  readonly suspiciousCount: number;
}

/** A catalogued server as it is called; without tools only the head was read. */
export type CalledServer = ServerHead & { readonly tools?: readonly CataloguedTool[] };

/** A whole catalogued server. */
export interface Server extends ServerHead {
  readonly description: string;
  readonly homepage?: string;
  readonly repository?: string;
  readonly categories: readonly string[];
  /** See `entrySchema`; absent: none. */
  readonly examples?: readonly string[];
  readonly tools: readonly CataloguedTool[];
  readonly registry?: RegistryMark;
}

/** Returns the part of a server that stays in memory. */
export function headOf(server: Server): HeldServer {
  const {
    description: _description,
    homepage: _homepage,
    repository: _repository,
    categories: _categories,
    examples = [],
    tools,
    registry,
    ...head
  } = server;
  const held = {
    ...head,
    toolCount: tools.length,
    exampleCount: examples.length,
    suspiciousCount: tools.filter(({ suspicious }) => suspicious !== undefined).length,
  };
  if (!registry) return held;
  const { document: _document, ...mark } = registry;
  return { ...held, registry: mark };
}

/** Access as a server showed it: by a refusal, or by answering a call that carried nothing. */
export interface LearnedAccess {
  readonly kind: 'none' | 'credentials' | 'oauth';
  readonly issuer?: string;
  /** Scopes of the challenge. */
  readonly scopes?: readonly string[];
  /** URL of the protected resource metadata (RFC 9728), if the challenge named it. */
  readonly resourceMetadata?: string;
  /** True: the issuer lets no client register itself, and the operator has configured none. */
  readonly needsSetup?: boolean;
}

/** Whether and how a server can be called. */
export interface Access {
  /** `provider`: a token from a configured identity provider; `oauth`: the server's own sign-in. */
  readonly kind: 'none' | 'credentials' | 'oauth' | 'provider' | 'unknown';
  /**
   * `connected`: the caller's calls carry what the server requires. `connect`: somebody must enter a key or sign in first.
   * `setup_needed`: this installation cannot make such a connection yet.
   */
  readonly status: 'open' | 'connected' | 'connect' | 'setup_needed' | 'unknown';
}

const KINDS: Readonly<Record<AuthSpec['kind'], Access['kind']>> = {
  none: 'none',
  static_header: 'credentials',
  own_oauth: 'oauth',
  user_oauth: 'provider',
  unknown: 'unknown',
};

const ACCESS: Readonly<Record<Access['kind'], Access>> = {
  none: { kind: 'none', status: 'open' },
  credentials: { kind: 'credentials', status: 'connect' },
  oauth: { kind: 'oauth', status: 'connect' },
  provider: { kind: 'provider', status: 'unknown' },
  unknown: { kind: 'unknown', status: 'unknown' },
};

const OAUTH_WITHOUT_CLIENT: Access = { kind: 'oauth', status: 'setup_needed' };

/**
 * Returns how a server can be called by somebody who has connected nothing. An entry's `credentials`, `oauth` or `provider`
 * is what somebody has decided; `none` and `unknown` give way to what the server itself has shown.
 */
export function accessOf({ auth, learned }: Pick<Server, 'auth' | 'learned'>): Access {
  const stated = KINDS[auth.kind];
  const kind = stated === 'none' || stated === 'unknown' ? (learned?.kind ?? stated) : stated;
  return kind === 'oauth' && learned?.needsSetup ? OAUTH_WITHOUT_CLIENT : ACCESS[kind];
}

/**
 * Returns whether nothing is ever sent to a server: its entry says so, and it has never refused a call. That it answered a
 * call which carried nothing is no reason: it may do more for those who send a key.
 */
export const needsNothing = ({ auth, learned }: Pick<Server, 'auth' | 'learned'>): boolean =>
  auth.kind === 'none' && (learned === undefined || learned.kind === 'none');

/** Returns a changed server with what was learned about its access before, unless its URL has changed. */
export const keepingLearned = (
  server: Server,
  known: Pick<Server, 'learned' | 'remoteUrl'> | undefined,
): Server =>
  known?.learned === undefined || known.remoteUrl !== server.remoteUrl || known.learned === server.learned
    ? server
    : { ...server, learned: known.learned };

/** Returns the entry of a server, in the format that `catalogue show` prints and `catalogue import` reads. */
export const toEntry = (server: Server): Entry => ({
  id: server.id,
  name: server.name,
  description: server.description,
  remote_url: server.remoteUrl,
  transport: server.transport,
  auth: server.auth,
  homepage: server.homepage,
  repository: server.repository,
  categories: [...server.categories],
  ...(server.examples === undefined ? {} : { examples: [...server.examples] }),
  ...(server.integrations === undefined ? {} : { integrations: [...server.integrations] }),
  tools: server.tools.map(bareTool),
});

/** Returns a tool in the format of an entry. */
export const bareTool = ({ name, description, input_schema, annotations }: Tool): Tool => ({
  name,
  description,
  input_schema,
  ...(annotations === undefined ? {} : { annotations }),
});

/** Returns the worse of two values of one annotation. */
export const worseOf = (one: Annotations | undefined, other: Annotations | undefined): Annotations => {
  const destructiveHint = one?.destructiveHint === true || other?.destructiveHint === true;
  const readOnlyHint = one?.readOnlyHint === true && other?.readOnlyHint === true && !destructiveHint;
  return { readOnlyHint, destructiveHint };
};

/** Returns the known annotations among those a server sent; undefined if there are none. */
export function annotationsOf(sent: unknown): Annotations | undefined {
  if (typeof sent !== 'object' || sent === null) return undefined;
  const { readOnlyHint, destructiveHint } = sent as Readonly<Record<string, unknown>>;
  const kept = {
    ...(typeof readOnlyHint === 'boolean' ? { readOnlyHint } : {}),
    ...(typeof destructiveHint === 'boolean' ? { destructiveHint } : {}),
  };
  return Object.keys(kept).length === 0 ? undefined : kept;
}
