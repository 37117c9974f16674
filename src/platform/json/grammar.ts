/**
 * The grammar of JSON (RFC 8259) as a table: for each state and byte, the next state, or an action that decides it.
 * Everything but the nesting of brackets is in it.
 */

/** The states that have a name; letters of words and digits of escapes have further ones. */
export const State = {
  /** At the start of a text that may have a byte order mark. */
  Start: 0,
  /** Before a value whose start is needed. */
  WantedValue: 1,
  Value: 2,
  ValueOrEnd: 3,
  Name: 4,
  NameOrEnd: 5,
  Colon: 6,
  CommaOrEnd: 7,
  End: 8,
  InText: 9,
  InName: 10,
  Minus: 11,
  Dot: 12,
  E: 13,
  Sign: 14,
  /** The last four can end a number. */
  Zero: 15,
  Integer: 16,
  Fraction: 17,
  Exponent: 18,
} as const;

/** Actions are numbers above all states. */
export const Action = {
  Fail: 128,
  /** The byte begins a value whose start is needed. */
  BeginWanted: 129,
  /** The byte is the first after a number. */
  EndNumber: 130,
  /** The byte is the last of a text or word. */
  EndValue: 131,
  BeginName: 132,
  EndName: 133,
  Colon: 134,
  Comma: 135,
  OpenObject: 136,
  OpenArray: 137,
  CloseObject: 138,
  CloseArray: 139,
} as const;

const WHITESPACE = ' \t\n\r';
const DIGITS = '0123456789';

/** The next state or action, at `state * 256 + byte`. */
export const NEXT: Uint8Array = new Uint8Array(128 * 256).fill(Action.Fail);

let states = State.Exponent + 1;

/** Adds: in this state, each of the bytes leads to the next. */
function rule(state: number, bytes: string, next: number): void {
  for (const byte of Buffer.from(bytes, 'latin1')) NEXT[state * 256 + byte] = next;
}

/** Adds: in this state, these bytes in sequence lead to the next. Each element has the alternatives for one byte. */
function sequence(state: number, bytes: readonly string[], next: number): void {
  let from = state;
  for (const [index, alternatives] of bytes.entries()) {
    const to = index === bytes.length - 1 ? next : states++;
    rule(from, alternatives, to);
    from = to;
  }
}

for (const state of [State.Start, State.WantedValue])
  NEXT.fill(Action.BeginWanted, state * 256, (state + 1) * 256);
rule(State.Start, WHITESPACE, State.WantedValue);
sequence(State.Start, ['\xef', '\xbb', '\xbf'], State.WantedValue);

for (const state of [State.Value, State.ValueOrEnd]) {
  rule(state, '"', State.InText);
  rule(state, '{', Action.OpenObject);
  rule(state, '[', Action.OpenArray);
  rule(state, '-', State.Minus);
  rule(state, '0', State.Zero);
  rule(state, '123456789', State.Integer);
  for (const word of ['true', 'false', 'null']) sequence(state, word.split(''), Action.EndValue);
}
rule(State.ValueOrEnd, ']', Action.CloseArray);

rule(State.Name, '"', Action.BeginName);
rule(State.NameOrEnd, '"', Action.BeginName);
rule(State.NameOrEnd, '}', Action.CloseObject);
rule(State.Colon, ':', Action.Colon);
rule(State.CommaOrEnd, ',', Action.Comma);
rule(State.CommaOrEnd, '}', Action.CloseObject);
rule(State.CommaOrEnd, ']', Action.CloseArray);
for (let state: number = State.WantedValue; state <= State.End; state++) rule(state, WHITESPACE, state);

for (const [state, end] of [
  [State.InText, Action.EndValue],
  [State.InName, Action.EndName],
] as const) {
  NEXT.fill(state, state * 256 + 0x20, (state + 1) * 256);
  rule(state, '"', end);
  const escape = states++;
  rule(state, '\\', escape);
  rule(escape, '"\\/bfnrt', state);
  const hex = `${DIGITS}abcdefABCDEF`;
  sequence(escape, ['u', hex, hex, hex, hex], state);
}

for (let state: number = State.Zero; state <= State.Exponent; state++)
  rule(state, `${WHITESPACE},]}`, Action.EndNumber);
rule(State.Minus, '0', State.Zero);
rule(State.Minus, '123456789', State.Integer);
rule(State.Integer, DIGITS, State.Integer);
for (const state of [State.Zero, State.Integer]) rule(state, '.', State.Dot);
rule(State.Dot, DIGITS, State.Fraction);
rule(State.Fraction, DIGITS, State.Fraction);
for (const state of [State.Zero, State.Integer, State.Fraction]) rule(state, 'eE', State.E);
rule(State.E, '+-', State.Sign);
for (const state of [State.E, State.Sign, State.Exponent]) rule(state, DIGITS, State.Exponent);
