import { SwitchboardError } from '../../errors.ts';
import { asSentence } from '../text.ts';
import { ArgumentChecks } from './arguments.ts';
import { Budget } from './budget.ts';
import { HEADER_MISMATCH, INVALID_PARAMS } from './envelope.ts';
import { isObject } from './json.ts';
import type { KnownTools, ToolDefinitions, View } from './tool-definitions.ts';
import { overviewOf, quoted, type KnownTool } from './tool-overview.ts';
import type { InputRequired, ToolCall, ToolResult } from './tools.ts';

/** How long a refused call of a tool that nobody knows waits for the server's own list, in milliseconds. */
const LIST_WAIT_MS = 5_000;
/** Of a tool's error text, what is looked at. */
const MAX_TEXT_CHARS = 2_000;

type Outcome = ToolResult | InputRequired;
type NamedCall = Pick<ToolCall, 'name' | 'arguments'>;
interface Sending {
  readonly send: () => Promise<Outcome>;
  readonly refresh: () => Promise<void>;
  /** The call's. */
  readonly budget: Budget;
}

/**
 * Tool calls that are checked before they go out, where the server's own fresh definitions are known, and explained after
 * it refused them, where they are not.
 */
export class CheckedCalls {
  readonly #definitions: ToolDefinitions;
  readonly #checks = new ArgumentChecks();

  constructor(definitions: ToolDefinitions) {
    this.#definitions = definitions;
  }

  /**
   * @param send makes the call.
   * @param refresh asks for the definitions in the background. Never rejects.
   * @throws SwitchboardError `invalid_params` for what the server's own schema does not allow; and what `send` throws, with
   * what was probably meant.
   */
  async run(view: View, call: NamedCall, { send, refresh, budget }: Sending): Promise<Outcome> {
    const known = this.#definitions.fresh(view);
    if (known) this.#check(known, call);
    try {
      const outcome = await send();
      const refused = speaksOfMistake(outcome) || (isFailure(outcome) && this.#isStranger(view, call));
      // Asked again: refused headers may have led to a listing meanwhile.
      const listing = refused || !this.#definitions.fresh(view) ? refresh() : undefined;
      if (!refused) return outcome;
      await this.#learn(view, call, listing, budget);
      return explained(outcome, this.#hint(view, call));
    } catch (error) {
      if (!isReported(error) || !(isRefusal(error) || this.#isStranger(view, call))) throw error;
      await this.#learn(view, call, refresh(), budget);
      throw withHint(error, this.#hint(view, call));
    }
  }

  /** Nobody has listed such a tool so far. */
  #isStranger(view: View, { name }: NamedCall): boolean {
    return this.#definitions.schemaOf(view, name) === undefined;
  }

  /** A call that failed for its name is worth a moment: with the server's own list the next one need not be guessed. */
  async #learn(view: View, call: NamedCall, listing: Promise<void> | undefined, budget: Budget) {
    if (!listing || !this.#isStranger(view, call)) return;
    using patience = new Budget(LIST_WAIT_MS);
    // Without the list the caller is told what there is.
    await budget.wait(patience.wait(listing)).catch(() => {});
  }

  #check(known: KnownTools, { name, arguments: args = {} }: NamedCall): void {
    const schema = known.schemas.get(name);
    if (schema === undefined) {
      const reason = known.unusable.get(name);
      const detail =
        reason === undefined
          ? `The server has no tool ${quoted(name)}.${overviewOf(name, listedIn(known))}`
          : `The tool ${quoted(name)} cannot be used: its definition is invalid (${reason}).`;
      throw new SwitchboardError('invalid_params', detail);
    }
    const problems = this.#checks.problems(schema, args);
    if (problems !== undefined)
      throw new SwitchboardError(
        'invalid_params',
        `The arguments do not fit the tool ${quoted(name)}: ${asSentence(problems)} Nothing was sent to the server.`,
      );
  }

  /** What was probably meant, by definitions that may be out of date: an explanation, no judgement. */
  #hint(view: View, { name, arguments: args = {} }: NamedCall): string | undefined {
    const known = this.#definitions.known(view);
    const tools = known ? listedIn(known) : view.server.tools.map(asKnown);
    if (tools.length === 0) return undefined;
    const schema = this.#definitions.schemaOf(view, name);
    if (!isObject(schema)) {
      const is = this.#definitions.fresh(view) ? 'has no' : 'is not known to have a';
      return `The server ${is} tool ${quoted(name)}.${overviewOf(name, tools)}`;
    }
    const problems = this.#checks.problems(schema, args);
    return problems === undefined
      ? undefined
      : asSentence(`By the definition last known of the tool: ${problems}`);
  }
}

function withHint(error: SwitchboardError, hint: string | undefined): SwitchboardError {
  if (hint === undefined) return error;
  const { retryAfterSec, upstreamError, members, cause } = error;
  return new SwitchboardError(error.code, `${asSentence(error.detail)} ${hint}`, {
    ...(retryAfterSec === undefined ? {} : { retryAfterSec }),
    upstreamError,
    members,
    cause,
  });
}

/** In a block of its own, beside what the tool itself said. */
function explained(outcome: Outcome, hint: string | undefined): Outcome {
  if (hint === undefined || !('content' in outcome) || !Array.isArray(outcome.content)) return outcome;
  const content: unknown[] = outcome.content;
  return { ...outcome, content: [...content, { type: 'text', text: `[Switchboard] ${hint}` }] };
}

const listedIn = ({ schemas, descriptions }: KnownTools): KnownTool[] =>
  [...schemas].map(([name, schema]) => ({ name, schema, description: descriptions.get(name) ?? '' }));

const asKnown = ({
  name,
  description,
  input_schema: schema,
}: View['server']['tools'][number]): KnownTool => ({
  name,
  description,
  schema,
});

/** The server's own error. */
const isReported = (error: unknown): error is SwitchboardError =>
  error instanceof SwitchboardError && error.code === 'upstream_error';

/** The server refused the call for what it says. */
function isRefusal({ upstreamError, detail }: SwitchboardError): boolean {
  const code = isObject(upstreamError) ? upstreamError['code'] : undefined;
  return code === INVALID_PARAMS || code === HEADER_MISMATCH || MISTAKE.test(detail);
}

/** Both SDKs' servers report wrong arguments and unknown tools like this, as results. */
const MISTAKE =
  /-32602|\b(?:invalid|unexpected|missing|unknown|unrecognized)\s(?:required )?(?:arguments?|params?|parameters?|inputs?|tool)\b|\bvalidation error|\btool\s\S{1,300}\s(?:was )?not found/i;

const isFailure = (outcome: Outcome) => outcome['isError'] === true;

function speaksOfMistake(outcome: Outcome): boolean {
  if (!isFailure(outcome) || !Array.isArray(outcome['content'])) return false;
  const content: unknown[] = outcome['content'];
  const [first] = content;
  if (!isObject(first) || typeof first['text'] !== 'string') return false;
  return MISTAKE.test(first['text'].slice(0, MAX_TEXT_CHARS));
}
