import { JsonParts } from '../../../platform/json/limits.ts';
import { JsonScan, type FoundJson } from '../../../platform/json/scan.ts';
import type { Chunks } from './chunks.ts';

/** Longer ids and types are left to the parser. */
const MAX_SHORT_BYTES = 1_024;
const [OBJECT, ARRAY] = [0x7b, 0x5b];
const FIND = { id: {}, method: {}, error: {}, result: { content: {}, isError: {}, resultType: {} } };

/**
 * A large result that was validated, but not parsed: parsing and stringifying it would hold up all other requests. It is an
 * object that neither is an error of a tool nor asks for input.
 */
export class LargeResult {
  readonly isError = false;
  readonly resultType: string | undefined;
  readonly hasContent: boolean;
  /** Its JSON, as the server sent it. */
  readonly json: JsonParts;
  readonly #namesError: boolean;
  #value: unknown;

  constructor(
    json: JsonParts,
    has: Pick<LargeResult, 'resultType' | 'hasContent'> & { namesError: boolean },
  ) {
    this.json = json;
    this.resultType = has.resultType;
    this.hasContent = has.hasContent;
    this.#namesError = has.namesError;
  }

  /** Returns the parsed value. */
  value(): unknown {
    return (this.#value ??= JSON.parse(Buffer.concat(this.json.parts).toString()));
  }

  /** Returns the JSON of a tool's result, which always has `isError`. */
  toToolResult(): JsonParts {
    const { parts } = this.json;
    return this.#namesError
      ? this.json
      : new JsonParts(...parts.slice(0, -1), ...parts.slice(-1).map(withoutEnd), `,"isError":false}`);
  }
}

const withoutEnd = (object: Buffer) => object.subarray(0, -1);

/** A response with a large result, which is parsed if it is read. */
export class LargeAnswer {
  readonly large: LargeResult;

  constructor(large: LargeResult) {
    this.large = large;
  }

  get result(): unknown {
    return this.large.value();
  }
}

/** Scans a large message as it arrives. Messages that are anything but an ordinary result are left to the parser. */
export class LargeAnswerScan {
  readonly #scan: JsonScan;
  #hasFailed = false;

  /** @param allowBom whether the message may begin with a byte order mark */
  constructor({ allowBom }: { readonly allowBom: boolean }) {
    this.#scan = new JsonScan({ find: FIND, allowBom });
  }

  /** Reads the next bytes of the message. */
  push(chunk: Buffer): void {
    if (this.#hasFailed) return;
    try {
      this.#scan.push(chunk);
    } catch {
      // The parser says what is wrong.
      this.#hasFailed = true;
    }
  }

  /**
   * Ends the message.
   * @param bytes all of it
   * @returns the response, if it is one to this request with an ordinary result
   */
  end(bytes: Chunks, ourId: string | number): LargeAnswer | undefined {
    const message = this.#hasFailed ? undefined : this.#ended();
    if (!message || message.members.has('method') || message.members.has('error')) return undefined;
    const id = shortValue(bytes, message.members.get('id'));
    const isOurs = (typeof id === 'string' || typeof id === 'number') && String(id) === String(ourId);
    const result = isOurs ? resultIn(bytes, message.members.get('result')) : undefined;
    return result && new LargeAnswer(result);
  }

  #ended(): FoundJson | undefined {
    try {
      return this.#scan.end();
    } catch {
      return undefined;
    }
  }
}

function resultIn(bytes: Chunks, found: FoundJson | undefined): LargeResult | undefined {
  if (!found || found.repeated || firstByte(bytes, found) !== OBJECT) return undefined;
  const content = found.members.get('content');
  const isError = shortValue(bytes, found.members.get('isError'));
  const resultType = shortValue(bytes, found.members.get('resultType'));
  if (content?.repeated || !isAbsentOrFalse(isError) || !isOrdinaryType(resultType)) return undefined;
  return new LargeResult(new JsonParts(...bytes.slice(found.start, found.end)), {
    resultType,
    hasContent: content !== undefined && firstByte(bytes, content) === ARRAY,
    namesError: isError === false,
  });
}

const firstByte = (bytes: Chunks, { start }: FoundJson) => bytes.slice(start, start + 1)[0]?.[0];

const isAbsentOrFalse = (isError: unknown) => isError === undefined || isError === false;

const isOrdinaryType = (type: unknown): type is string | undefined =>
  type === undefined || (typeof type === 'string' && type !== 'input_required');

/** Returns the parsed value of a member; undefined if it is missing, null if it is long or repeated. */
function shortValue(bytes: Chunks, found: FoundJson | undefined): unknown {
  if (!found) return undefined;
  if (found.repeated || found.end - found.start > MAX_SHORT_BYTES) return null;
  return JSON.parse(Buffer.concat(bytes.slice(found.start, found.end)).toString());
}
