import { SwitchboardError } from '../../../errors.ts';
import { settledWithin } from '../../../platform/time.ts';
import { asSentence } from '../../../platform/sanitize.ts';
import { ArgumentChecks, readAsDeclared } from './check-arguments.ts';
import type { Deadline } from '../upstream/deadline.ts';
import { HEADER_MISMATCH, INVALID_PARAMS, type Params, type UpstreamReply } from '../upstream/envelope.ts';
import { restated } from '../upstream/failures.ts';
import { isObject, type JsonParts } from '../../../platform/json/limits.ts';
import type { ProxyLimits } from '../limits.ts';
import type { InputRequired, KnownTools, ToolCall, ToolDefinitions, ToolResult, View } from '../tools.ts';
import type { Tool } from '../../catalogue/entry.ts';
import { overviewOf, quoted, type KnownTool } from '../hints.ts';

/** The maximum number of characters examined in a tool's error text. */
const MAX_TEXT_CHARS = 2_000;

/** JSON is that of a large result, which is no error. */
type Outcome = ToolResult | InputRequired | JsonParts;
type NamedCall = Pick<ToolCall, 'name' | 'arguments' | 'readOnly'>;
interface Sending<T extends Outcome = Outcome> {
  /** Sends the call with these arguments. */
  readonly send: (args: ToolCall['arguments']) => Promise<UpstreamReply>;
  /** Returns the outcome in the server's reply. @throws SwitchboardError */
  readonly read: (reply: UpstreamReply) => T;
  /** Refreshes the definitions: in the call's own slot if it waits for them, otherwise in the background. Never rejects. */
  readonly refresh: (where?: 'in-slot') => Promise<void>;
  readonly deadline: Deadline;
}

/**
 * Checks tool calls before they are sent, if the server's current definitions are known. If they are not, explains calls that the
 * server refused.
 */
export class CheckedCalls {
  readonly #definitions: ToolDefinitions;
  readonly #checks = new ArgumentChecks();
  readonly #listWaitMs: number;

  constructor(definitions: ToolDefinitions, { toolListWaitMs }: Pick<ProxyLimits, 'toolListWaitMs'>) {
    this.#definitions = definitions;
    this.#listWaitMs = toolListWaitMs;
  }

  /**
   * Runs one call. An unlisted tool is looked up first, because many servers report an unknown tool as an ordinary result.
   * @throws SwitchboardError `invalid_params` if the server's own list does not have the tool or allow the call; the errors of
   * `send`, with a suggestion
   */
  async run<T extends Outcome>(view: View, call: NamedCall, sending: Sending<T>): Promise<T> {
    let known = this.#definitions.fresh(view);
    if (!known && this.#mustList(view, call)) {
      await this.#list(view, sending);
      known = this.#definitions.fresh(view);
    }
    const args = this.#admit(view, call, known);
    const { send, read, refresh } = sending;
    try {
      const outcome = read(await send(args));
      const refused = speaksOfMistake(outcome) || (isFailure(outcome) && this.#isStranger(view, call));
      // The definitions are read again, because refused headers may have triggered a listing in the meantime.
      if (refused || !this.#definitions.fresh(view)) void refresh();
      return refused ? explained(outcome, this.#hint(view, call)) : outcome;
    } catch (error) {
      if (!isReported(error) || !(isRefusal(error) || this.#isStranger(view, call))) throw error;
      void refresh();
      throw withHint(error, this.#hint(view, call));
    }
  }

  /** Returns whether the server's tools must be listed before the call: the tool is unknown, or the call must be read-only. */
  #mustList(view: View, call: NamedCall): boolean {
    return call.readOnly === true || (this.#isStranger(view, call) && this.#definitions.mayWait(view));
  }

  /** Waits for a listing, for as long as a call may wait. */
  async #list(view: View, { refresh, deadline }: Sending): Promise<void> {
    const waitMs = Math.min(this.#listWaitMs, deadline.totalMs / 3);
    const isInTime = await listed(refresh('in-slot'), waitMs, deadline);
    if (!isInTime && waitMs === this.#listWaitMs) this.#definitions.noteSlow(view);
  }

  /** Returns the arguments to send. @throws SwitchboardError `invalid_params` for a call that must not be sent */
  #admit(view: View, call: NamedCall, known: KnownTools | undefined): NamedCall['arguments'] {
    const args = known ? this.#checked(known, call) : this.#repaired(view, call);
    if (call.readOnly && known?.annotations.get(call.name)?.readOnlyHint !== true)
      throw new NotReadOnly(call.name, known !== undefined);
    return args;
  }

  /** Returns whether no listing has such a tool. */
  #isStranger(view: View, { name }: NamedCall): boolean {
    return this.#definitions.schemaOf(view, name) === undefined;
  }

  #checked(known: KnownTools, { name, arguments: given }: NamedCall): NamedCall['arguments'] {
    const schema = known.schemas.get(name);
    // An empty list is inconclusive: some servers show their tools only to signed-in users.
    if (schema === undefined && known.schemas.size + known.unusable.size === 0) return given;
    if (schema === undefined) {
      const reason = known.unusable.get(name);
      const detail =
        reason === undefined
          ? `The server has no tool ${quoted(name)}.${overviewOf(name, listedIn(known))}`
          : `The tool ${quoted(name)} cannot be used: its definition is invalid (${reason}).`;
      throw new SwitchboardError('invalid_params', detail);
    }
    const problems = this.#checks.problems(schema, given ?? {});
    if (problems === undefined) return given;
    const read = this.#fitting(schema, given);
    if (read !== undefined) return read;
    throw new SwitchboardError(
      'invalid_params',
      `The arguments do not match the schema of the tool ${quoted(name)}: ${asSentence(problems)} Nothing was sent to the server.`,
    );
  }

  /** An outdated definition never refuses a call, but corrects obvious mistakes. */
  #repaired(view: View, { name, arguments: given }: NamedCall): NamedCall['arguments'] {
    const schema = this.#definitions.schemaOf(view, name);
    if (!isObject(schema)) return given;
    // Conversion comes first, because it is cheap and rarely changes anything that would need checking.
    const read = this.#fitting(schema, given);
    return read !== undefined && this.#checks.problems(schema, given ?? {}) !== undefined ? read : given;
  }

  /** Returns the converted arguments if they are valid then. */
  #fitting(schema: Readonly<Record<string, unknown>>, given: NamedCall['arguments']): Params | undefined {
    const read = readAsDeclared(schema, given ?? {});
    return read !== undefined && this.#checks.problems(schema, read) === undefined ? read : undefined;
  }

  /** Suggests corrections from definitions that may be outdated: explains, but refuses nothing. */
  #hint(view: View, { name, arguments: args = {} }: NamedCall): string | undefined {
    const known = this.#definitions.known(view);
    const tools = known ? listedIn(known) : (view.server.tools ?? []).map(asKnown);
    if (tools.length === 0) return undefined;
    const schema = this.#definitions.schemaOf(view, name);
    if (!isObject(schema)) {
      const is = this.#definitions.fresh(view) ? 'has no' : 'is not known to have a';
      return `The server ${is} tool ${quoted(name)}.${overviewOf(name, tools)}`;
    }
    const problems = this.#checks.problems(schema, args);
    return problems === undefined
      ? undefined
      : asSentence(`According to the last known definition of the tool: ${problems}`);
  }
}

/**
 * Waits for a listing, at most `waitMs`; without it the call continues. Resolves to whether the listing or the call ended in time.
 */
const listed = (listing: Promise<void>, waitMs: number, deadline: Deadline): Promise<boolean> =>
  deadline.wait(settledWithin(listing, waitMs)).catch(() => true);

/** The call must be read-only, but its server does not mark the tool as read-only. */
export class NotReadOnly extends SwitchboardError {
  /** True if the server listed its tools and this one is not marked. */
  readonly isListed: boolean;

  constructor(name: string, isListed: boolean) {
    const why = isListed
      ? `The server does not mark its tool ${quoted(name)} as read-only.`
      : `The server's tools could not be listed, so it is unknown whether ${quoted(name)} is read-only.`;
    super('invalid_params', `${why} The call was not sent.`);
    this.isListed = isListed;
  }
}

function withHint(error: SwitchboardError, hint: string | undefined): SwitchboardError {
  return hint === undefined ? error : restated(error, `${asSentence(error.detail)} ${hint}`);
}

/** Adds the hint as a separate block after the tool's own text. */
function explained<T extends Outcome>(outcome: T, hint: string | undefined): T {
  if (hint === undefined || !('content' in outcome) || !Array.isArray(outcome.content)) return outcome;
  const content: unknown[] = outcome.content;
  return Object.assign({}, outcome, {
    content: [...content, { type: 'text', text: `[Switchboard] ${hint}` }],
  });
}

const listedIn = ({ schemas, descriptions, annotations }: KnownTools): KnownTool[] =>
  [...schemas].map(([name, schema]) => ({
    name,
    schema,
    description: descriptions.get(name) ?? '',
    annotations: annotations.get(name),
  }));

const asKnown = ({ name, description, input_schema: schema, annotations }: Tool): KnownTool => ({
  name,
  description,
  schema,
  annotations,
});

/** Returns whether the error comes from the server. */
const isReported = (error: unknown): error is SwitchboardError =>
  error instanceof SwitchboardError && error.code === 'upstream_error';

/** Returns whether the server refused the call because of its content. */
function isRefusal({ upstreamError, detail }: SwitchboardError): boolean {
  const code = isObject(upstreamError) ? upstreamError['code'] : undefined;
  return code === INVALID_PARAMS || code === HEADER_MISMATCH || MISTAKE.test(detail);
}

/** The servers of both SDKs report wrong arguments and unknown tools like this, as results. */
const MISTAKE =
  /-32602|\b(?:invalid|unexpected|missing|unknown|unrecognized)\s(?:required )?(?:arguments?|params?|parameters?|inputs?|tool)\b|\bvalidation error|\btool\s\S{1,300}\s(?:was )?not found/i;

const isFailure = (outcome: Outcome) => 'isError' in outcome && outcome.isError === true;

function speaksOfMistake(outcome: Outcome): boolean {
  if (!isFailure(outcome) || !('content' in outcome) || !Array.isArray(outcome.content)) return false;
  const content: unknown[] = outcome.content;
  const [first] = content;
  if (!isObject(first) || typeof first['text'] !== 'string') return false;
  return MISTAKE.test(first['text'].slice(0, MAX_TEXT_CHARS));
}
