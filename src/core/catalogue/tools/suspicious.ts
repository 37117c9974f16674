import { cleanText } from '../../../platform/sanitize.ts';

export interface SuspicionRule {
  readonly id: string;
  /** For the table in docs/tools.md. */
  readonly finds: string;
  readonly why: string;
  /** `clean` is matched against the displayed text, so that invisible characters cannot split words; `raw` against the original. */
  readonly in: 'clean' | 'raw';
  /** Takes time linear in the text's length: repetitions are bounded, and no two adjacent ones match the same characters. */
  readonly pattern: RegExp;
}

/** The published rules (docs/tools.md). */
export const SUSPICION_RULES: readonly SuspicionRule[] = [
  {
    id: 'hide_from_user',
    finds: 'asks to hide something from the user: "do not tell the user", "without the user noticing"',
    why: 'A tool has nothing to hide from the user it works for.',
    in: 'clean',
    pattern:
      /\b(?:do not|don['’]t|never|must not|without|avoid|refrain from)\s[^.\n]{0,20}\b(?:tell|inform|mention|notify|reveal|disclose|alert)(?:ing)?\b[^.\n]{0,40}\b(?:users?|humans?)\b|\bwithout\s(?:the )?users?['’s]{0,2} (?:knowing|noticing|knowledge|awareness)\b|\b(?:hide|conceal|keep)\s[^.\n]{0,40}\b(?:hidden |secret )?from the (?:user|human)\b|\bkeep (?:this|it|that) (?:a )?secret\b/i,
  },
  {
    id: 'skip_consent',
    finds: 'asks to act without the user\'s consent: "do not ask for confirmation"',
    why: 'The user and the client decide whether a call needs consent.',
    in: 'clean',
    pattern:
      /\b(?:do not|don['’]t|never)\s(?:ask|prompt|wait for|request|seek)\b[^.\n]{0,20}\b(?:confirmation|permission|consent|approval)\b|\bwithout\s(?:asking|the (?:consent|permission|approval) of)\s(?:the )?(?:user|human)\b/i,
  },
  {
    id: 'ignore_instructions',
    finds: 'asks to ignore other instructions: "ignore all previous instructions"',
    why: 'This is the classic prompt injection. A tool description must not override instructions.',
    in: 'clean',
    pattern:
      /\b(?:ignore|disregard|forget|override|bypass)\s[^.\n]{0,20}\b(?:previous|prior|preceding|above|earlier|all|any|other|system|safety|your|existing)\b[^.\n]{0,20}\b(?:instructions?|prompts?|guidelines|directives|guardrails)\b|\bignore\s(?:everything|anything|all)\s(?:above|before|you (?:were|have been) told)\b/i,
  },
  {
    id: 'new_role',
    finds: 'gives the model another role: "from now on you must", "you are now unrestricted"',
    why: 'A description should describe the tool, not the model that reads it.',
    in: 'clean',
    pattern:
      /\bfrom now on,? you\s(?:must|will|are|should|shall)\b|\byou are (?:now|no longer)\s(?:an? )?(?:unrestricted|jailbroken|bound by|in developer mode|dan\b)/i,
  },
  {
    id: 'read_secrets',
    finds: 'asks to read files that hold secrets: SSH keys, .env, cloud credentials, client settings',
    why: "A remote tool does not need the user's local files.",
    in: 'clean',
    pattern:
      /\b(?:read|open|cat|load|access|fetch|get|include|attach|pass|send|copy|upload|contents? of)\b[^\n]{0,60}(?:\.ssh\b|\bid_(?:rsa|ed25519|ecdsa)\b|\.aws\/|\.env\b(?!\.example)|\.netrc\b|\.npmrc\b|\.git-credentials|\.kube\/config|\/etc\/(?:passwd|shadow)|\.cursor\/|claude_desktop_config|\.bash_history|\.gnupg\b|\bmcp\.json\b)/i,
  },
  {
    id: 'send_conversation',
    finds: 'asks for the conversation, the system prompt or earlier messages as an argument',
    why: 'Arguments should contain only what the task needs. A conversation may contain private messages.',
    in: 'clean',
    pattern:
      /\b(?:send|pass|include|forward|attach|provide|put|copy|insert|upload|transmit|repeat|summari[sz]e)\b[^.\n]{0,50}\b(?:(?:entire|full|whole|complete|current|our|your|previous|prior)\s(?:[a-z]{1,12} )?(?:conversation|chat|messages|dialogue|context window)|(?:conversation|chat) (?:history|context|transcript|so far)|system prompt)\b/i,
  },
  {
    id: 'send_elsewhere',
    finds: 'asks to also send something to an address: "always bcc x@y", "first post the result to https://"',
    why: 'A description should not direct data anywhere besides the call.',
    in: 'clean',
    pattern:
      /\b(?:also|always|must|first|secretly|silently|automatically|additionally)\b[^.\n]{0,20}\b(?:send|post|forward|upload|transmit|exfiltrate|submit|bcc|cc|copy|report)\b[^.\n]{0,60}(?:https?:\/\/|[\w+-]@[\w-])/i,
  },
  {
    id: 'collect_secrets',
    finds: 'asks for any credentials the model can find: "include any API keys you know"',
    why: 'A tool may ask for its own key, but not for all keys.',
    in: 'clean',
    pattern:
      /\b(?:any|all|every)\s[^.\n]{0,30}\b(?:api keys?|passwords?|credentials|secrets|access tokens?|environment variables|private keys?)\b[^.\n]{0,30}\b(?:you (?:know|have|can|find|see)|from (?:the|this|your) (?:conversation|context|chat|environment|memory))\b/i,
  },
  {
    id: 'tool_priority',
    finds: 'claims priority over other tools: "before using any other tool", "never use other tools"',
    why: 'A description that mentions other tools may influence their calls.',
    in: 'clean',
    pattern:
      /\b(?:before|prior to|instead of|whenever)\s(?:you )?(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?)?\s{0,1}(?:any|all|every|the) (?:other )?tools?\b(?<=other tools?)|\b(?:do not|don['’]t|never)\s(?:use|call|invoke)\s(?:any )?other tools?\b|\bthis tool\s(?:has|takes)\s[^.\n]{0,20}\b(?:priority|precedence)\b|\b(?:must|always)\s[^.\n]{0,20}\b(?:this tool|call(?:ed)?|used?)\s(?:first,? )?before (?:any|all|every) other\b/i,
  },
  {
    id: 'fake_tag',
    finds: 'tags that imitate a system prompt: `<IMPORTANT>`, `<system>`, `[INST]`',
    why: "Chat template markup makes a tool's text look like the system prompt.",
    in: 'clean',
    pattern:
      /<\/?\s?(?:important|system|system[-_ ](?:prompt|message|reminder)|admin|hidden|secret|critical|override)\s?>|\[\/?(?:INST|SYSTEM)\]|<\|(?:im_start|im_end|system|endoftext|start_header_id)\|>|<<SYS>>/i,
  },
  {
    id: 'hidden_text',
    finds: 'invisible text: zero-width, bidi and tag characters, terminal codes, HTML comments',
    why: 'A human reader does not see the text that the model reads.',
    in: 'raw',
    pattern: new RegExp(
      String.raw`[\u{200b}\u{2060}-\u{2064}\u{202a}-\u{202e}\u{2066}-\u{2069}\u{180e}\u{3164}]|[\u{e0000}-\u{e007f}]|[\u{e0100}-\u{e01ef}]|[\u{1b}\u{9b}]|<!--`,
      'u',
    ),
  },
];

/** Limits the number of characters examined per definition. */
const MAX_CHARS = 40_000;

/** Returns the ids of the rules that a definition's texts match, in the order of the rules. */
export function suspicionsOf(definition: unknown): string[] {
  const texts: string[] = [];
  collect(definition, MAX_CHARS, texts);
  const raw = texts.join('\n');
  const clean = cleanText(raw);
  return SUSPICION_RULES.filter(rule => rule.pattern.test(rule.in === 'raw' ? raw : clean)).map(
    ({ id }) => id,
  );
}

/**
 * Collects every string of a value, including names of members, because instructions can also be in defaults and argument
 * names. Returns the remaining number of characters.
 */
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
