import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import type { OpenApi, Operation } from './document.ts';
import { faults } from './faults.ts';
import type { FuzzAnswer, FuzzRequest } from './send.ts';

/** What a request can be refused with before it has reached its operation. */
const ASTRAY: ReadonlySet<number> = new Set([400, 401, 403, 404, 405, 413, 415]);
/** An error names what was wrong; it does not send back all that came. */
const MAX_ERROR_CHARS = 3_000;

/** Tells what is wrong with an answer, in words of one line each; nothing is the rule. */
export class Judge {
  readonly #ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true });
  readonly #isProblem: ValidateFunction;
  readonly #compiled = new Map<object, ValidateFunction>();
  readonly #key: string;

  /** @param key the one with which requests are to succeed */
  constructor({ components }: OpenApi, key: string) {
    this.#isProblem = this.#ajv.compile(components.schemas['Problem'] ?? {});
    this.#key = key;
  }

  problems(operation: Operation, request: FuzzRequest, answer: FuzzAnswer): string[] {
    const found = this.#ofAll(operation, request, answer);
    if (request.method === 'HEAD') return found;
    return [
      ...found,
      ...(answer.status < 400
        ? this.#ofSuccess(operation, request, answer)
        : this.#ofError(operation, request, answer)),
    ];
  }

  #ofAll({ responses }: Operation, { family }: FuzzRequest, { status, text, headers }: FuzzAnswer): string[] {
    const isDocumented = String(status) in responses || (family === 'astray' && ASTRAY.has(status));
    const isHtml = /html/i.test(headers['content-type'] ?? '') || /^\s*<(?!script>alert)/.test(text);
    return [
      ...(status === 500 ? ['500'] : isDocumented ? [] : [`undocumented status ${status}`]),
      ...(isHtml ? ['HTML'] : []),
    ];
  }

  #ofSuccess({ responses, body }: Operation, request: FuzzRequest, answer: FuzzAnswer): string[] {
    if (request.family === 'astray') return [];
    const found = faults([keyOf(request) !== this.#key, 'success without the key']);
    const type = String(answer.headers['content-type']).replace(/;.*/, '');
    const schema = responses['200']?.content?.[type]?.schema;
    if (!schema) return [...found, `undocumented content type ${type}`];
    if (type !== 'application/json') return found;
    found.push(...misfits('answer', this.#compile(schema), answer.text));
    const wanted = body?.['application/json']?.schema;
    // What a Content-Encoding hides is not looked into.
    if (wanted && request.headers['content-encoding'] === undefined)
      found.push(...misfits('request that succeeded', this.#compile(wanted), request.body ?? ''));
    return found;
  }

  #ofError({ name, responses }: Operation, { family }: FuzzRequest, answer: FuzzAnswer): string[] {
    const type = String(answer.headers['content-type']);
    if (type !== 'application/problem+json; charset=utf-8') return [`error as ${type}`];
    const found = misfits('error', this.#isProblem, answer.text);
    if (found.length > 0) return found;
    const { code, status, request_id, detail, error, jsonrpc, id } = JSON.parse(answer.text);
    const described = responses[answer.status]?.description ?? '';
    const isThere = family !== 'astray';
    const isRpc = isThere && name === 'POST /v1/mcp/call';
    // A JSON-RPC error says whose it is, however long an id the caller chose.
    const chars = answer.text.length - String(id ?? '').length;
    return faults(
      [isThere && !described.includes(`\`${code}\``), `undocumented code ${code} of status ${answer.status}`],
      [status !== answer.status, `the error says ${status}, the status is ${answer.status}`],
      [request_id !== answer.headers['x-request-id'], 'request_id is not X-Request-Id'],
      [detail === '', 'an error without detail'],
      [chars > MAX_ERROR_CHARS, `an error of over ${MAX_ERROR_CHARS} characters`],
      [isRpc && !(jsonrpc === '2.0' && Number.isInteger(error?.code)), 'no JSON-RPC error'],
    );
  }

  #compile(schema: object): ValidateFunction {
    const check = this.#compiled.get(schema) ?? this.#ajv.compile(schema);
    this.#compiled.set(schema, check);
    return check;
  }
}

/** As the server reads it: without the spaces around it, and none where it came twice. */
export function keyOf({ headers }: FuzzRequest): string | undefined {
  const key = headers['x-api-key'];
  return typeof key === 'string' ? key.trim() : undefined;
}

/** @param what stands before each of the problems */
function misfits(what: string, check: ValidateFunction, text: string | Buffer): string[] {
  let value: unknown;
  try {
    value = JSON.parse(
      typeof text === 'string' ? text.replace(/^\ufeff/, '') : new TextDecoder().decode(text),
    );
  } catch {
    return [`${what}: no JSON`];
  }
  if (check(value)) return [];
  return (check.errors ?? []).slice(0, 3).map(one => `${what}: ${one.instancePath} ${one.message ?? ''}`);
}
