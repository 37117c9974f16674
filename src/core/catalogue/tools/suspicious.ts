import { cleanText } from '../../../platform/sanitize.ts';
import { SUSPICION_RULES } from './suspicious-rules.ts';

/** Characters of one definition that are looked at: its texts in order, up to here. A bound on work. */
const MAX_CHARS = 40_000;

/** The ids of the rules that a definition's texts match (`suspicious-rules.ts`), in the order of the rules. */
export function suspicionsOf(definition: unknown): string[] {
  const texts: string[] = [];
  collect(definition, MAX_CHARS, texts);
  const raw = texts.join('\n');
  const clean = cleanText(raw);
  return SUSPICION_RULES.filter(rule => rule.pattern.test(rule.in === 'raw' ? raw : clean)).map(
    ({ id }) => id,
  );
}

/** Every string in it, names of members too: instructions hide in defaults and argument names as well. Returns what is left of the room. */
function collect(value: unknown, room: number, texts: string[]): number {
  if (room <= 0) return 0;
  if (typeof value === 'string') {
    texts.push(value.slice(0, room));
    return room - value.length;
  }
  if (typeof value !== 'object' || value === null) return room;
  let left = room;
  for (const [key, member] of Object.entries(value)) {
    if (!Array.isArray(value)) left = collect(key, left, texts);
    left = collect(member, left, texts);
    if (left <= 0) break;
  }
  return left;
}
