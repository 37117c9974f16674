import { isSpecType, type ContentBlock } from '@modelcontextprotocol/server';
import { sanitise } from '../../core/text.ts';
import type { ToolResult } from '../../core/proxy/proxy.ts';

/** What one result of `call_remote_tool` may put into an agent's context: Unicode code points, structured content included. */
const MAX_RESULT_CHARS = 100_000;
/** What the emptiest block counts as, so that their number is bounded too. */
const MIN_BLOCK_CHARS = 20;
const MAX_BLOCKS = MAX_RESULT_CHARS / MIN_BLOCK_CHARS;

const ADVICE = 'ask the tool for less at a time, or get the whole with POST /v1/mcp/tools/call (up to 8 MiB)';

interface Shown {
  readonly content: ContentBlock[];
  readonly structuredContent?: unknown;
}

/**
 * A tool's result as an agent can bear it: blocks that are not of the protocol become text, and what is over the limit is
 * cut, with a marker that says how long the whole is. Text is cut in its middle, everything else is left out whole.
 */
export function toAgentResult(result: ToolResult): Shown {
  const blocks = result.content.slice(0, MAX_BLOCKS).map(toBlock);
  const more = result.content.slice(MAX_BLOCKS);
  const structured = 'structuredContent' in result ? JSON.stringify(result['structuredContent']) : undefined;
  const units = JSON.stringify(blocks).length + (structured?.length ?? 0);
  // In UTF-16 units there are never less than code points.
  if (more.length === 0 && units <= MAX_RESULT_CHARS) return shown(blocks, result, structured !== undefined);

  const { content, left } = cutBlocks(blocks, more);
  if (structured === undefined) return { content };
  if (lengthOf(structured) <= left) return shown(content, result, true);
  // Most often the text says the same; only where there is none is the JSON worth showing in part.
  content.push(text(cutText(structured, blocks.length === 0 ? left : 0, 'of structured_content ')));
  return { content };
}

const shown = (content: ContentBlock[], result: ToolResult, withStructured: boolean): Shown => ({
  content,
  ...(withStructured ? { structuredContent: result['structuredContent'] } : {}),
});

function cutBlocks(blocks: readonly ContentBlock[], more: readonly unknown[]) {
  const content: ContentBlock[] = [];
  let left = MAX_RESULT_CHARS;
  let at = 0;
  for (const block of blocks) {
    if (left <= 0) break;
    const fitting = fit(block, left);
    content.push(fitting);
    left -= sizeOf(fitting);
    at++;
  }
  const rest = [...blocks.slice(at), ...more];
  if (rest.length > 0) {
    const length = JSON.stringify(rest).length;
    content.push(text(`[cut: ${count(rest.length)} more blocks of ${count(length)} characters; ${ADVICE}]`));
  }
  return { content, left: Math.max(0, left) };
}

/** The block, or what of it and about it can be shown; that may go over the limit by a marker. */
function fit(block: ContentBlock, left: number): ContentBlock {
  const size = sizeOf(block);
  if (size <= left) return block;
  if (block.type !== 'text') return text(cutText('', 0, nameOf(block), size));
  return text(lengthOf(block.text) <= left ? block.text : cutText(block.text, left));
}

/** What a block takes from the limit. */
function sizeOf(block: ContentBlock): number {
  const { type, ...rest } = block;
  if (type !== 'text') return JSON.stringify(rest).length;
  const { text: words, _meta: meta } = block;
  return Math.max(MIN_BLOCK_CHARS, lengthOf(words) + (meta === undefined ? 0 : JSON.stringify(meta).length));
}

const nameOf = (block: ContentBlock): string => {
  const mimeType = 'mimeType' in block ? sanitise(String(block.mimeType), 80) : '';
  return `of this ${block.type}${mimeType === '' ? '' : ` (${mimeType})`} `;
};

function cutText(whole: string, max: number, what = '', length = lengthOf(whole)): string {
  const head = headOf(whole, max);
  const marker = `[cut: ${count(Math.min(max, length))} of ${count(length)} characters ${what}shown; ${ADVICE}]`;
  return head === '' ? marker : `${head}\n${marker}`;
}

const count = (value: number) => value.toLocaleString('en-US');
const text = (words: string) => ({ type: 'text' as const, text: words });

const isPair = (words: string, at: number) => (words.codePointAt(at) ?? 0) > 0xff_ff;

/** In code points. A loop, as results are megabytes: an array of their characters would be hundreds. */
function lengthOf(words: string): number {
  let length = 0;
  for (let at = 0; at < words.length; at += isPair(words, at) ? 2 : 1) length++;
  return length;
}

/** The first code points of a text. */
function headOf(words: string, max: number): string {
  let at = 0;
  for (let length = 0; length < max && at < words.length; length++) at += isPair(words, at) ? 2 : 1;
  return words.slice(0, at);
}

/** What is no content block of the protocol (the SDK would refuse the whole result for it), as text that can be read. */
function toBlock(value: unknown): ContentBlock {
  if (isSpecType.ContentBlock(value)) return value;
  if (typeof value === 'string') return text(value);
  const { type, text: words } = (value ?? {}) as { type?: unknown; text?: unknown };
  if (type === 'text' && typeof words === 'string') return text(words);
  return text(JSON.stringify(value));
}
