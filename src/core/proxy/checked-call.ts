import { SwitchboardError } from '../../errors.ts';
import { asSentence, sanitise } from '../text.ts';
import { ArgumentChecks, listed } from './arguments.ts';
import { HEADER_MISMATCH, INVALID_PARAMS } from './envelope.ts';
import { isObject } from './json.ts';
import { nearest } from './nearest.ts';
import type { KnownTools, ToolDefinitions, View } from './tool-definitions.ts';
import type { InputRequired, ToolCall, ToolResult } from './tools.ts';

const MAX_SUGGESTIONS = 3;
/** Of a tool's error text, what is looked at. */
const MAX_TEXT_CHARS = 2_000;

type Outcome = ToolResult | InputRequired;
type NamedCall = Pick<ToolCall, 'name' | 'arguments'>;

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
   * @param refresh asks for the definitions in the background.
   * @throws SwitchboardError `invalid_params` for what the server's own schema does not allow; and what `send` throws, with
   * what was probably meant.
   */
  async run(
    view: View,
    call: NamedCall,
    { send, refresh }: { readonly send: () => Promise<Outcome>; readonly refresh: () => void },
  ): Promise<Outcome> {
    const known = this.#definitions.fresh(view);
    if (known) this.#check(known, call);
    try {
      const outcome = await send();
      const refused = speaksOfMistake(outcome);
      // Asked again: refused headers may have led to a listing meanwhile.
      if (refused || !this.#definitions.fresh(view)) refresh();
      return refused ? explained(outcome, this.#hint(view, call)) : outcome;
    } catch (error) {
      if (!isRefusal(error)) throw error;
      refresh();
      const hint = this.#hint(view, call);
      if (hint === undefined) throw error;
      const { retryAfterSec, upstreamError, members, cause } = error;
      throw new SwitchboardError(error.code, `${asSentence(error.detail)} ${hint}`, {
        ...(retryAfterSec === undefined ? {} : { retryAfterSec }),
        upstreamError,
        members,
        cause,
      });
    }
  }

  #check({ schemas, unusable }: KnownTools, { name, arguments: args = {} }: NamedCall): void {
    const schema = schemas.get(name);
    if (schema === undefined) {
      const reason = unusable.get(name);
      const detail =
        reason === undefined
          ? `The server has no tool ${quoted(name)}.${suggestion(name, schemas.keys())}`
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
    const names = known ? [...known.schemas.keys()] : view.server.tools.map(tool => tool.name);
    if (names.length === 0) return undefined;
    const schema = this.#definitions.schemaOf(view, name);
    if (!isObject(schema)) {
      const likely = suggestion(name, names);
      return likely === '' ? undefined : `The server is not known to have a tool ${quoted(name)}.${likely}`;
    }
    const problems = this.#checks.problems(schema, args);
    return problems === undefined
      ? undefined
      : asSentence(`By the definition last known of the tool: ${problems}`);
  }
}

/** In a block of its own, beside what the tool itself said. */
function explained(outcome: Outcome, hint: string | undefined): Outcome {
  if (hint === undefined || !('content' in outcome) || !Array.isArray(outcome.content)) return outcome;
  const content: unknown[] = outcome.content;
  return { ...outcome, content: [...content, { type: 'text', text: `[Switchboard] ${hint}` }] };
}

function suggestion(name: string, names: Iterable<string>): string {
  const all = [...names];
  const likely = nearest(name, all, MAX_SUGGESTIONS);
  if (likely.length > 0) return ` Did you mean ${likely.map(quoted).join(' or ')}?`;
  return all.length === 0 ? '' : ` It has ${listed(all)}.`;
}

const quoted = (name: string) => JSON.stringify(sanitise(name, 80));

/** The server refused the call for what it says. */
function isRefusal(error: unknown): error is SwitchboardError {
  if (!(error instanceof SwitchboardError) || error.code !== 'upstream_error') return false;
  const { upstreamError } = error;
  const code = isObject(upstreamError) ? upstreamError['code'] : undefined;
  return code === INVALID_PARAMS || code === HEADER_MISMATCH || MISTAKE.test(error.detail);
}

/** Both SDKs' servers report wrong arguments and unknown tools like this, as results. */
const MISTAKE =
  /-32602|\b(?:invalid|unexpected|missing|unknown|unrecognized)\s(?:required )?(?:arguments?|params?|parameters?|inputs?|tool)\b|\bvalidation error|\btool\s\S{1,300}\s(?:was )?not found/i;

function speaksOfMistake(outcome: Outcome): boolean {
  if (!('isError' in outcome) || outcome.isError !== true || !Array.isArray(outcome.content)) return false;
  const content: unknown[] = outcome.content;
  const [first] = content;
  if (!isObject(first) || typeof first['text'] !== 'string') return false;
  return MISTAKE.test(first['text'].slice(0, MAX_TEXT_CHARS));
}
