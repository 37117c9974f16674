import { z } from 'zod';
import { SwitchboardError } from '../../errors.ts';
import { nearest } from '../../platform/closest-names.ts';
import { quoted } from '../../platform/sanitize.ts';
import { addressVariables, fillAddress, namesIn, templateProblem, VARIABLE } from './address-template.ts';

/** Headers that no connection may set, because they belong to HTTP, to MCP, to proxies or to tracing. */
const RESERVED_HEADERS =
  /^(?:accept|accept-.*|b3|baggage|cache-control|cf-(?!access-).*|client-ip|connection|content-.*|date|expect|fly-client-ip|forwarded|host|if-.*|keep-alive|last-event-id|max-forwards|mcp-.*|origin|proxy-.*|range|remote-.*|sentry-trace|set-cookie|te|traceparent|tracestate|trailer|transfer-.*|true-client-ip|uber-trace-id|upgrade|user-agent|via|x-amzn-oidc-.*|x-amzn-trace-id|x-appengine-.*|x-b3-.*|x-client-ip|x-cloud-trace-context|x-cluster-client-ip|x-envoy-.*|x-forwarded-.*|x-goog-authenticated-user-.*|x-goog-iap-.*|x-http-method.*|x-ms-client-principal.*|x-original-.*|x-real-ip|x-remote-.*|x-rewrite-.*|x-ssl-.*)$/i;
/** Many servers read an underscore in a name as a hyphen. */
const isReserved = (name: string) => RESERVED_HEADERS.test(name.replaceAll('_', '-'));
export const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/;
/** A header's value: visible ASCII and spaces. */
const HEADER_TEXT = /^[\x20-\x7e]*$/;
const MAX_VALUE_BYTES = 8 * 1024;
/** Limits all headers together to what servers commonly accept. */
const MAX_HEADERS_BYTES = 16 * 1024;
export const MAX_VARIABLES = 4;
const DEFAULT_FIELD = 'token';

/** One value that a person or a backend gives. The names follow the registry's `server.json`. */
const inputShape = {
  description: z.string().max(2_000).optional(),
  required: z.boolean().optional(),
  secret: z.boolean().optional(),
  default: z.string().max(1_024).regex(HEADER_TEXT, 'must be printable ASCII').optional(),
  choices: z.array(z.string().max(1_024)).max(50).optional(),
  placeholder: z.string().max(200).optional(),
};

export const headerSchema = z.object({
  name: z
    .string()
    .regex(HEADER_NAME, 'must be the name of an HTTP header')
    .refine(name => !isReserved(name), 'is a header that Switchboard sets itself'),
  /** A template, such as `Bearer {token}`. Absent: the whole value is given. */
  value: z
    .string()
    .max(1_024)
    .regex(HEADER_TEXT, 'must be printable ASCII')
    .refine(text => namesIn(text).length <= MAX_VARIABLES, `must have at most ${MAX_VARIABLES} variables`)
    .optional(),
  variables: z.record(z.string(), z.object(inputShape)).optional(),
  ...inputShape,
});

export const headersSchema = z
  .array(headerSchema)
  .min(1)
  .max(20)
  .refine(
    headers => headers.some(header => header.value === undefined || variablesOf(header).length > 0),
    'must ask for at least one value: a header without `value`, or with a {name} in it',
  );

export const variablesSchema = z.record(z.string(), z.object(inputShape));

/** The headers that a server requires, the variables of its address, and the page that issues their values. */
export const credentialShape = {
  headers: headersSchema.optional(),
  variables: variablesSchema.optional(),
  key_url: z
    .url({ protocol: /^https$/, error: 'must be an https URL' })
    .max(2_048)
    .regex(/^[\x21-\x7e]+$/, 'must be ASCII without spaces')
    .optional(),
};

export type HeaderSpec = z.infer<typeof headerSchema>;
type HeaderSpecs = readonly HeaderSpec[];

/** A server, as far as it says what it asks for. */
interface Asking {
  readonly remoteUrl: string;
  readonly auth: {
    readonly headers?: HeaderSpecs | undefined;
    readonly variables?: Readonly<Record<string, CredentialInput>> | undefined;
  };
}
export type CredentialInput = z.infer<typeof variablesSchema>[string];

/** A value that a connection with the server needs, or may have. */
export interface CredentialField {
  readonly name: string;
  readonly description?: string | undefined;
  readonly isRequired: boolean;
  readonly isSecret: boolean;
  readonly default?: string | undefined;
  readonly choices?: readonly string[] | undefined;
  readonly placeholder?: string | undefined;
}

/** Values as the vault keeps them. */
export interface CredentialValues {
  readonly values: Readonly<Record<string, string>>;
  /** The header that carries the key, if the entry declares none and it is not `Authorization`. */
  readonly header?: string | undefined;
}

/** Servers whose entry declares no header nearly always want this one. */
const BEARER: HeaderSpecs = [{ name: 'Authorization', value: `Bearer {${DEFAULT_FIELD}}` }];

/** Returns whether a header can be named for the key, because the entry says nothing of where it goes. */
export const takesHeader = ({ remoteUrl, auth }: Asking): boolean =>
  auth.headers === undefined && addressVariables(remoteUrl).all.length === 0;

const specsOf = (server: Asking, header?: string): HeaderSpecs => {
  if (!takesHeader(server)) return server.auth.headers ?? [];
  return header === undefined ? BEARER : [{ name: header, value: `{${DEFAULT_FIELD}}` }];
};

const variablesOf = ({ value = '' }: HeaderSpec): string[] => namesIn(value);

/**
 * Returns why an entry cannot be catalogued: its address has variables in the wrong place, or that nobody is asked for. Undefined:
 * nothing is wrong.
 */
export function variablesProblem({ remoteUrl, auth }: Asking, takesValues: boolean): string | undefined {
  const problem = templateProblem(remoteUrl, MAX_VARIABLES);
  if (problem !== undefined) return `remote_url: ${problem}`;
  const { all } = addressVariables(remoteUrl);
  if (all.length > 0 && !takesValues)
    return 'remote_url: has {variables}, whose values belong to a connection, so auth.kind must be credentials';
  const unknown = Object.keys(auth.variables ?? {}).find(name => !all.includes(name));
  return unknown === undefined ? undefined : `auth.variables: remote_url has no {${cleanName(unknown)}}`;
}

const cleanName = (name: string) => name.replaceAll(/[^\w-]/g, '').slice(0, 64);

/** Returns the values that a server asks for, in the order of its address and its headers. */
export function credentialFields(server: Asking): CredentialField[] {
  const { inPath, all } = addressVariables(server.remoteUrl);
  const ofAddress = all.map(name => {
    const input = server.auth.variables?.[name] ?? {};
    return fieldOf(name, inPath.includes(name) ? { ...input, required: true } : input);
  });
  const ofHeaders = specsOf(server).flatMap(spec =>
    (spec.value === undefined ? [spec.name] : variablesOf(spec)).map(name =>
      fieldOf(name, { ...spec, ...spec.variables?.[name] }),
    ),
  );
  // A part of the address that is sent in a header, too, is described by the address.
  return [...new Map([...ofHeaders, ...ofAddress].map(field => [field.name, field])).values()];
}

const fieldOf = (name: string, input: CredentialInput): CredentialField => ({
  name,
  description: input.description,
  isRequired: input.required ?? true,
  isSecret: input.secret ?? true,
  default: input.default,
  choices: input.choices,
  placeholder: input.placeholder,
});

/**
 * Checks the values that somebody gives for a server. Spaces around a value, and a scheme that its template adds (`Bearer `), are
 * dropped: people paste them along. Empty values count as missing.
 * @param given the values by field, and the header if it is not `Authorization`
 * @throws SwitchboardError `invalid_request`, never with a value in its text
 */
export function checkValues(server: Asking, given: CredentialValues): CredentialValues {
  const { header } = given;
  if (header !== undefined) checkHeader(server, header);
  const fields = credentialFields(server);
  const names = fields.map(({ name }) => name);
  const unknown = Object.keys(given.values).find(name => !names.includes(name));
  if (unknown !== undefined) throw unknownValue(unknown, names);
  const specs = specsOf(server, header);
  const { inPath } = addressVariables(server.remoteUrl);
  const values = fields.flatMap(field => {
    const value = valueOf(field, given.values);
    if (value !== undefined && inPath.includes(field.name)) checkPart(field.name, value);
    return value === undefined ? [] : [[field.name, withoutScheme(specs, field.name, value)] as const];
  });
  if (values.length === 0 && fields.every(field => field.default === undefined))
    throw new SwitchboardError('invalid_request', `values: give at least one of ${names.join(', ')}`);
  return { values: Object.fromEntries(values), ...(header === undefined ? {} : { header }) };
}

/** Returns the value given for a field, checked; undefined if there is none and none is required. */
function valueOf(field: CredentialField, values: CredentialValues['values']): string | undefined {
  const value = (Object.hasOwn(values, field.name) ? values[field.name] : undefined)?.trim();
  if (value !== undefined && value !== '') {
    checkValue(field, value);
    return value;
  }
  if (field.isRequired && field.default === undefined) throw refuse(field.name, 'is missing');
  return undefined;
}

function checkHeader(server: Asking, header: string): void {
  if (!takesHeader(server)) {
    const names = server.auth.headers?.map(({ name }) => name) ?? addressVariables(server.remoteUrl).all;
    const what = server.auth.headers ? 'which headers it wants' : 'that its values go into its address';
    throw new SwitchboardError(
      'invalid_request',
      `header: leave it out. The server's entry says ${what}: ${names.join(', ')}`,
    );
  }
  if (!HEADER_NAME.test(header))
    throw new SwitchboardError('invalid_request', 'header: must be the name of an HTTP header');
  if (isReserved(header) || /^cookie$/i.test(header))
    throw new SwitchboardError(
      'invalid_request',
      `header: ${quoted(header)} cannot carry a key, because HTTP or MCP uses it for something else`,
    );
}

function checkValue({ name, choices }: CredentialField, value: string): void {
  if (Buffer.byteLength(value) > MAX_VALUE_BYTES)
    throw refuse(name, `must have at most ${MAX_VALUE_BYTES} bytes`);
  if (!HEADER_TEXT.test(value))
    throw refuse(name, 'must be printable ASCII, without line breaks: it goes into an HTTP request');
  if (choices && !choices.includes(value)) throw refuse(name, `must be one of ${choices.join(', ')}`);
}

/** Many servers decode a path more than once, and would see more parts than the one that a value may fill. */
function checkPart(name: string, value: string): void {
  if (/[/\\]|%(?:2[ef]|5c)|^\.{1,2}$/i.test(value))
    throw refuse(
      name,
      "must not contain / or \\, encoded or not, nor be dots only: it is one part of the path of the server's address",
    );
}

const refuse = (name: string, why: string) =>
  new SwitchboardError('invalid_request', `values.${name}: ${why}`);

function unknownValue(name: string, names: readonly string[]): SwitchboardError {
  const [close] = nearest(name, names, 1);
  const meant = close === undefined ? '' : ` Did you mean ${quoted(close)}?`;
  return new SwitchboardError(
    'invalid_request',
    `values: the server asks for no value called ${quoted(name)}.${meant} It takes ${names.join(', ')}`,
  );
}

function withoutScheme(specs: HeaderSpecs, field: string, value: string): string {
  const template = specs.find(spec => variablesOf(spec).includes(field))?.value ?? '';
  const scheme = template.slice(0, template.indexOf('{'));
  const startsWithScheme = scheme !== '' && value.toLowerCase().startsWith(scheme.toLowerCase());
  return startsWithScheme ? value.slice(scheme.length).trim() : value;
}

/**
 * Returns the headers that the values make, by lower-case name, the address if it has variables, and the secret ones among the values.
 * A header or a query parameter with a variable that has no value and no default is left out. Returns the names of required values
 * instead if some are missing: the entry has changed since they were given.
 * @throws SwitchboardError `invalid_request` for headers that are too long together, or an address that cannot be filled
 */
export function fillIn(
  server: Asking,
  { values, header }: CredentialValues,
): Filled | { readonly missing: readonly string[] } {
  const known = new Map<string, string>();
  const secrets: string[] = [];
  const missing: string[] = [];
  for (const { name, default: preset, isRequired, isSecret } of credentialFields(server)) {
    const given = Object.hasOwn(values, name) ? values[name] : undefined;
    const value = given ?? preset;
    if (value !== undefined) known.set(name, value);
    else if (isRequired) missing.push(name);
    if (given !== undefined && isSecret) secrets.push(given);
  }
  if (missing.length > 0) return { missing };
  const wanted = specsOf(server, header).flatMap(({ name, ...spec }) => {
    const template = spec.value ?? `{${name}}`;
    const names = spec.value === undefined ? [name] : variablesOf({ name, ...spec });
    return names.every(one => known.has(one))
      ? [{ name, template, names, isWhole: spec.value === undefined }]
      : [];
  });
  const lengths = wanted.flatMap(({ template, names }) => [
    template.length,
    ...names.map(name => known.get(name)?.length ?? 0),
  ]);
  if (lengths.reduce((sum, length) => sum + length, 0) > MAX_HEADERS_BYTES)
    throw new SwitchboardError(
      'invalid_request',
      `values: the headers together must have at most ${MAX_HEADERS_BYTES} bytes`,
    );
  const filled = wanted.map(({ name, template, isWhole }) => {
    const value = isWhole
      ? (known.get(name) ?? '')
      : template.replaceAll(VARIABLE, (_, one: string) => known.get(one) ?? '');
    return [name.toLowerCase(), value] as const;
  });
  const url = filledAddress(server.remoteUrl, known);
  return { headers: Object.fromEntries(filled), secrets, ...(url ? { url } : {}) };
}

/** Returns undefined for an address without variables. @throws SwitchboardError `invalid_request` */
function filledAddress(address: string, known: ReadonlyMap<string, string>): URL | undefined {
  if (addressVariables(address).all.length === 0) return undefined;
  const url = fillAddress(address, known);
  if (url) return url;
  throw new SwitchboardError(
    'invalid_request',
    "values: the server's address cannot be made of them, because they are too long or change its path",
  );
}

interface Filled {
  readonly headers: Readonly<Record<string, string>>;
  /** The address of the server with its variables filled in, which is as secret as they are. */
  readonly url?: URL;
  readonly secrets: readonly string[];
}
