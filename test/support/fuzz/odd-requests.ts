import { gzipSync } from 'node:zlib';
import * as fc from 'fast-check';
import { altered, type FuzzRequest, type Headers } from './send.ts';

export interface Keys {
  /** Has the scope of the operation. */
  readonly right: string;
  /** Has every other. */
  readonly otherScope: string;
  readonly revoked: string;
}

export const pathOnly = ({ target }: FuzzRequest): string => target.replace(/\?.*/, '');

const NO_JSON: readonly (string | Buffer)[] = [
  '',
  ' ',
  '{',
  '}',
  '{"a":1',
  '{"a":1,}',
  "{'a':1}",
  'NaN',
  'undefined',
  'nul',
  '"',
  '[1,]',
  '{}{}',
  '{"a":1}x',
  '<html></html>',
  'query=x&limit=1',
  '--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--',
  '[',
  '['.repeat(100_000),
  '{"a":'.repeat(20_000),
  '\ufeff{}',
  Buffer.from('{"query":"x"}', 'utf16le'),
  Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d]),
  Buffer.from([0xed, 0xa0, 0x80]),
  Buffer.alloc(1_000),
  gzipSync('{"query":"x"}'),
];

const TYPES = [
  '',
  'text/html',
  'text/plain',
  'application/xml',
  'application/x-www-form-urlencoded',
  'multipart/form-data; boundary=x',
  'multipart/form-data',
  'application/json; charset=utf-16',
  'application/json; charset="utf-8"',
  'application/json;',
  'application/jsonl',
  'application/x-ndjson',
  'APPLICATION/JSON',
  ';;;',
  '/',
  '*/*',
  'x'.repeat(2_000),
];

const ODD_HEADERS: readonly Headers[] = [
  { 'idempotency-key': '' },
  { 'idempotency-key': 'two words' },
  { 'idempotency-key': 'x'.repeat(256) },
  { 'idempotency-key': ['a', 'b'] },
  { 'switchboard-timeout-ms': '0' },
  { 'switchboard-timeout-ms': '1e9' },
  { 'switchboard-timeout-ms': ['1000', '1000'] },
  { accept: 'text/html' },
  { accept: 'application/x-ndjson' },
  { accept: 'application/x-ndjson' },
  { accept: ';q=,,,' },
  { accept: 'application/json;q=0' },
  { 'accept-encoding': 'identity;q=0, *;q=0' },
  { 'content-encoding': 'gzip' },
  { 'content-encoding': 'zstd' },
  { 'content-encoding': 'gzip, br' },
  { 'content-encoding': 'rot13' },
  { host: 'evil.example' },
  { host: '' },
  { host: '127.0.0.1:99999' },
  { origin: 'https://evil.example' },
  { origin: 'null' },
  { origin: '\u00ff' },
  { authorization: 'Bearer' },
  { authorization: 'Bearer x.y.z' },
  { authorization: 'Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.' },
  { authorization: `Bearer ${'x'.repeat(6_000)}` },
  { authorization: 'Basic YTpi' },
  { authorization: ['Bearer a', 'Bearer b'] },
  { traceparent: '00-0-0-0' },
  { 'x-forwarded-for': '::::, \u00ff, 1' },
  { 'x-forwarded-host': 'evil.example' },
  { 'x-http-method-override': 'DELETE' },
  { cookie: 'a=%; __proto__=1' },
  { 'x-request-id': '\u00ff'.repeat(500) },
  { range: 'bytes=0-1,9-' },
  { 'if-none-match': '*' },
  { connection: 'close' },
];

/** The same with one or two things wrong around the message. */
export function brokenRequests(valid: fc.Arbitrary<FuzzRequest>, { right, otherScope, revoked }: Keys) {
  const wrongKeys = [
    '',
    'x',
    ` ${right}`,
    `${right}x`,
    otherScope,
    revoked,
    'x'.repeat(5_000),
    '\u00ff',
    '0',
  ];
  const changes = fc.oneof<fc.Arbitrary<Partial<FuzzRequest>>[]>(
    fc.constantFrom(...NO_JSON).map(body => ({ body })),
    fc.constantFrom(...TYPES).map(type => ({ headers: { 'content-type': type } })),
    fc.constantFrom(...ODD_HEADERS).map(headers => ({ headers })),
    fc.constantFrom(...wrongKeys).map(key => ({ headers: { 'x-api-key': key } })),
    fc.constant({ headers: { 'x-api-key': [right, right] } }),
  );
  return fc
    .tuple(valid, fc.array(changes, { minLength: 1, maxLength: 2 }))
    .map(([one, all]) => all.reduce(altered, altered(one, { family: 'broken' })));
}

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'PURGE'];

const MANGLED: readonly ((path: string) => string)[] = [
  path => `${path}/`,
  path => `${path}/x`,
  path => `/${path}`,
  path => path.slice(0, -1),
  path => path.toUpperCase(),
  path => path.replace('/v', '/./v'),
  path => `${path}/..`,
  path => `${path}%2F`,
  path => `${path}%00`,
  path => `${path}%`,
  path => `${path};a=b`,
  path => `${path}:`,
  path => path.replaceAll('/', '%2F').replace('%2F', '/'),
  path => path.replace(/^\/v[\d.]+/, '/v99'),
  path => `/x/..${path}`,
  path => `${path}/${'x'.repeat(6_000)}`,
  path => `${path}/${'a/'.repeat(2_000)}`,
  path => `http://127.0.0.1${path}/x`,
];

/** By another method, or to a path nearby. */
export const astrayRequests = (valid: fc.Arbitrary<FuzzRequest>): fc.Arbitrary<FuzzRequest> =>
  fc.oneof(
    fc
      .tuple(valid, fc.constantFrom(...METHODS))
      .map(([one, method]) => altered(one, { method, family: 'astray' })),
    fc
      .tuple(valid, fc.constantFrom(...MANGLED))
      .map(([one, mangle]) => altered(one, { target: mangle(pathOnly(one)), family: 'astray' })),
  );
