import { z } from 'zod';
import { SwitchboardError } from '../../errors.ts';
import { nearest } from '../../platform/closest-names.ts';
import { quoted } from '../../platform/sanitize.ts';

/** Headers that no connection may set, because they belong to HTTP, to MCP, to proxies or to tracing. */
const RESERVED_HEADERS =
  /^(?:accept|accept-.*|b3|baggage|cache-control|cf-(?!access-).*|client-ip|connection|content-.*|date|expect|forwarded|host|if-.*|keep-alive|last-event-id|max-forwards|mcp-.*|origin|proxy-.*|range|remote-.*|set-cookie|te|traceparent|tracestate|trailer|transfer-.*|true-client-ip|uber-trace-id|upgrade|user-agent|via|x-amzn-trace-id|x-b3-.*|x-client-ip|x-forwarded-.*|x-http-method.*|x-original-.*|x-real-ip|x-remote-.*|x-rewrite-.*)$/i;
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/;
const VARIABLE = /\{([A-Za-z_][\w-]{0,63})\}/g;
/** A header's value: visible ASCII and spaces. */
const HEADER_TEXT = /^[\x20-\x7e]*$/;
const MAX_VALUE_BYTES = 8 * 1024;
/** Limits all headers together to what servers commonly accept. */
const MAX_HEADERS_BYTES = 16 * 1024;
const MAX_VARIABLES = 4;
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
    .refine(name => !RESERVED_HEADERS.test(name), 'is a header that Switchboard sets itself'),
  /** A template, such as `Bearer {token}`. Absent: the whole value is given. */
  value: z
    .string()
    .max(1_024)
    .regex(HEADER_TEXT, 'must be printable ASCII')
    .refine(
      text => [...text.matchAll(VARIABLE)].length <= MAX_VARIABLES,
      `must have at most ${MAX_VARIABLES} variables`,
    )
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

/** The headers that a server requires, and the page that issues their values. */
export const credentialShape = {
  headers: headersSchema.optional(),
  key_url: z
    .url({ protocol: /^https$/, error: 'must be an https URL' })
    .max(2_048)
    .regex(/^[\x21-\x7e]+$/, 'must be ASCII without spaces')
    .optional(),
};

export type HeaderSpec = z.infer<typeof headerSchema>;
type HeaderSpecs = readonly HeaderSpec[];

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

const specsOf = (headers: HeaderSpecs | undefined, header: string | undefined): HeaderSpecs => {
  if (headers) return headers;
  return header === undefined ? BEARER : [{ name: header, value: `{${DEFAULT_FIELD}}` }];
};

const variablesOf = ({ value = '' }: HeaderSpec): string[] =>
  [...value.matchAll(VARIABLE)].flatMap(([, name]) => name ?? []);

/** Returns the values that a server asks for, in the order of its headers. */
export function credentialFields(headers: HeaderSpecs | undefined): CredentialField[] {
  const fields = new Map<string, CredentialField>();
  for (const spec of specsOf(headers, undefined)) {
    const names = spec.value === undefined ? [spec.name] : variablesOf(spec);
    for (const name of names) {
      const input = { ...spec, ...spec.variables?.[name] };
      fields.set(name, {
        name,
        description: input.description,
        isRequired: input.required ?? true,
        isSecret: input.secret ?? true,
        default: input.default,
        choices: input.choices,
        placeholder: input.placeholder,
      });
    }
  }
  return [...fields.values()];
}

/**
 * Checks the values that somebody gives for a server. Spaces around a value, and a scheme that its template adds (`Bearer `), are
 * dropped: people paste them along. Empty values count as missing.
 * @param given the values by field, and the header if it is not `Authorization`
 * @throws SwitchboardError `invalid_request`, never with a value in its text
 */
export function checkValues(headers: HeaderSpecs | undefined, given: CredentialValues): CredentialValues {
  const { header } = given;
  if (header !== undefined) checkHeader(headers, header);
  const fields = credentialFields(headers);
  const names = fields.map(({ name }) => name);
  const unknown = Object.keys(given.values).find(name => !names.includes(name));
  if (unknown !== undefined) throw unknownValue(unknown, names);
  const specs = specsOf(headers, header);
  const values = fields.flatMap(field => {
    const value = valueOf(field, given.values);
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

function checkHeader(headers: HeaderSpecs | undefined, header: string): void {
  if (headers) {
    const declared = headers.map(({ name }) => name).join(', ');
    throw new SwitchboardError(
      'invalid_request',
      `header: leave it out. The server's entry says which headers it wants: ${declared}`,
    );
  }
  if (!HEADER_NAME.test(header))
    throw new SwitchboardError('invalid_request', 'header: must be the name of an HTTP header');
  if (RESERVED_HEADERS.test(header) || /^cookie$/i.test(header))
    throw new SwitchboardError(
      'invalid_request',
      `header: ${quoted(header)} cannot carry a key, because HTTP or MCP uses it for something else`,
    );
}

function checkValue({ name, choices }: CredentialField, value: string): void {
  if (Buffer.byteLength(value) > MAX_VALUE_BYTES)
    throw refuse(name, `must have at most ${MAX_VALUE_BYTES} bytes`);
  if (!HEADER_TEXT.test(value))
    throw refuse(name, 'must be printable ASCII, without line breaks: it goes into an HTTP header');
  if (choices && !choices.includes(value)) throw refuse(name, `must be one of ${choices.join(', ')}`);
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
 * Returns the headers that the values make, by lower-case name, and the secret ones among the values. A header with a variable that has
 * no value and no default is left out. Returns the names of required values instead if some are missing: the entry has changed since
 * they were given.
 * @throws SwitchboardError `invalid_request` for headers that are too long together
 */
export function fillHeaders(
  headers: HeaderSpecs | undefined,
  { values, header }: CredentialValues,
): FilledHeaders | { readonly missing: readonly string[] } {
  const known = new Map<string, string>();
  const secrets: string[] = [];
  const missing: string[] = [];
  for (const { name, default: preset, isRequired, isSecret } of credentialFields(headers)) {
    const value = Object.hasOwn(values, name) ? values[name] : preset;
    if (value !== undefined) known.set(name, value);
    else if (isRequired) missing.push(name);
    if (value !== undefined && isSecret) secrets.push(value);
  }
  if (missing.length > 0) return { missing };
  const wanted = specsOf(headers, header).flatMap(({ name, ...spec }) => {
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
  return { headers: Object.fromEntries(filled), secrets };
}

interface FilledHeaders {
  readonly headers: Readonly<Record<string, string>>;
  readonly secrets: readonly string[];
}
