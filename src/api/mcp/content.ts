import { isSpecType, type ContentBlock } from '@modelcontextprotocol/server';
import { isObject, jsonSizeOf } from '../../platform/json/limits.ts';
import type { ToolResult } from '../../core/proxy/proxy.ts';
import { codePointsIn, sanitise } from '../../platform/sanitize.ts';
import { readOnCall, type Reader } from './own-server.ts';
import { count, headOf, MAX_SHOWN_BYTES, MAX_SHOWN_ERROR_BYTES } from './shown.ts';

/** Limits the images and audio of a result, in characters of base64. They cost a model a fixed amount each, not per byte. */
const MAX_MEDIA_CHARS = 4_000_000;
/** An empty block counts as this many bytes, which also limits the number of blocks. */
const MIN_BLOCK_BYTES = 20;
const MAX_BLOCKS = MAX_SHOWN_BYTES / MIN_BLOCK_BYTES;
const MAX_MEDIA_BLOCKS = 100;
/** Limits an image or audio without its data: its type, annotations and `_meta`. */
const MAX_MEDIA_NOTE_BYTES = 2_000;
/** Limits the blocks whose texts are stored, because reading millions of them would block the event loop. */
const MAX_KEPT_BLOCKS = 50_000;
/** Limits how many values in all blocks are validated; an invalid one costs some microseconds. */
const MAX_CHECKED_VALUES = 20_000;
/** Limits the values of one block. Normal blocks have a handful. */
const MAX_BLOCK_VALUES = 100;
/** Longer `annotations` and `_meta` of a block are omitted. */
const MAX_REMARK_CHARS = 1_000;
/** Longer texts are not parsed to detect repeated structured content, because that would block the event loop. */
const MAX_COMPARED_CHARS = 1_000_000;

/** Stores the full text of a result. Resolves to its handle, or to undefined if it could not be stored. */
type Keep = (whole: string) => Promise<string | undefined>;

export interface Shown {
  readonly content: ContentBlock[];
  readonly structuredContent?: unknown;
  readonly cut?: { readonly handle: string; readonly total_characters: number };
}

/**
 * Returns a tool's result in a form that fits into an agent's context. Blocks unknown to the protocol become text. Text over
 * the limit is truncated, stored in full, and ends with the call that continues it. Structured content is passed on if it is
 * within the limit, because clients show it instead of the text.
 */
export async function toAgentResult(
  result: ToolResult,
  { keep, reader }: { readonly keep: Keep; readonly reader: Reader },
): Promise<Shown> {
  const maxBytes = result.isError ? MAX_SHOWN_ERROR_BYTES : MAX_SHOWN_BYTES;
  const cutter = new Cutter(maxBytes);
  const patience = { values: MAX_CHECKED_VALUES };
  for (const sent of result.content.slice(0, MAX_BLOCKS)) cutter.add(toBlock(sent, patience));
  for (const sent of result.content.slice(MAX_BLOCKS, MAX_KEPT_BLOCKS)) cutter.leave(wordsOf(sent));
  const others = result.content.length - MAX_KEPT_BLOCKS;
  if (others > 0) cutter.leave(`[${count(others)} more blocks, which were not stored]`);
  const structured = structuredOf(result, maxBytes, cutter);
  const cut = cutter.isWhole ? undefined : await cutter.finish(keep, reader);
  return { content: cutter.content, ...structured, ...(cut === undefined ? {} : { cut }) };
}

/** Returns the structured content if it is within the limit. Otherwise converts it to text, unless the text already contains it. */
function structuredOf(
  result: ToolResult,
  maxBytes: number,
  cutter: Cutter,
): Pick<Shown, 'structuredContent'> {
  if (!('structuredContent' in result)) return {};
  const { structuredContent } = result;
  const json = JSON.stringify(structuredContent);
  if (Buffer.byteLength(json) <= maxBytes) return { structuredContent };
  // Part of a JSON text is useless next to other text.
  if (result.content.length === 0) cutter.add(text(json));
  else if (!cutter.repeats(structuredContent)) cutter.leave(json);
  return {};
}

/** Processes a result's blocks one by one: keeps as many as fit, and collects the text of all. */
class Cutter {
  readonly content: ContentBlock[] = [];
  readonly #parts: string[] = [];
  /** The remaining bytes of text. */
  #left: number;
  #mediaLeft = MAX_MEDIA_CHARS;
  #mediaBlocksLeft = MAX_MEDIA_BLOCKS;
  /** The first part that is not shown in full, and the beginning that is shown. Undefined: everything is shown. */
  #cut: { readonly part: number; readonly head: string } | undefined;

  constructor(maxBytes: number) {
    this.#left = maxBytes;
  }

  get isWhole(): boolean {
    return this.#cut === undefined;
  }

  /** Returns whether the texts repeat the structured content, or the `result` in which SDKs wrap a non-object value. */
  repeats(structured: unknown): boolean {
    const isWrapped = isObject(structured) && Object.keys(structured).length === 1 && 'result' in structured;
    const forms: unknown[] = isWrapped ? [structured, structured['result']] : [structured];
    if (this.#parts.some(part => forms.includes(part))) return true;
    const jsons = new Set(forms.map(form => JSON.stringify(form)));
    const texts = this.#parts.map(part => (part.length < MAX_COMPARED_CHARS ? canonical(part) : undefined));
    return texts.some(json => json !== undefined && jsons.has(json)) || jsons.has(`[${texts.join(',')}]`);
  }

  add(block: ContentBlock): void {
    if (isMedia(block)) return this.#addMedia(block);
    if (!this.isWhole) return this.leave(readable(block));
    const size = sizeOf(block);
    if (size <= this.#left) {
      this.#left -= size;
      this.content.push(block);
      this.#parts.push(readable(block));
    } else if (isBlob(block)) {
      this.#leaveOut(block, block.resource.blob.length);
    } else {
      const words = readable(block);
      const head = headOf(words, this.#left);
      this.#cut = { part: this.#parts.length, head };
      this.#left = 0;
      this.#parts.push(words);
      if (head !== '') this.content.push(text(head));
    }
  }

  /** Collects the text of a block that is not shown. */
  leave(words: string): void {
    this.#cut ??= { part: this.#parts.length, head: '' };
    this.#left = 0;
    this.#parts.push(words);
  }

  /** Stores the full text, and ends the content with the call that continues it. */
  async finish(keep: Keep, reader: Reader): Promise<Shown['cut']> {
    const whole = this.#parts.join('\n');
    const handle = await keep(whole);
    const { part, head } = this.#cut ?? { part: this.#parts.length, head: '' };
    const before = this.#parts.slice(0, part).reduce((sum, words) => sum + codePointsIn(words) + 1, 0);
    const offset = before + codePointsIn(head);
    const totalChars = codePointsIn(whole);
    this.content.push(text(cutMarker({ handle, offset, totalChars, reader })));
    return handle === undefined ? undefined : { handle, total_characters: totalChars };
  }

  #addMedia(block: Media): void {
    const { length } = block.data;
    const noteBytes = sizeOf({ ...block, data: '' });
    if (length > this.#mediaLeft || this.#mediaBlocksLeft === 0 || noteBytes > MAX_MEDIA_NOTE_BYTES)
      return this.#leaveOut(block, length);
    this.#mediaLeft -= length;
    this.#mediaBlocksLeft--;
    this.content.push(block);
    this.#parts.push(readable(block));
  }

  #leaveOut(block: ContentBlock, base64Chars: number): void {
    const words = text(
      `[omitted: this ${nameOf(block)} has ${count(base64Chars)} base64 characters, too many to show]`,
    );
    const size = sizeOf(words);
    if (size > this.#left) return this.leave(readable(block));
    this.#left -= size;
    this.content.push(words);
    this.#parts.push(readable(block));
  }
}

const canonical = (json: string): string | undefined => {
  try {
    return JSON.stringify(JSON.parse(json));
  } catch {
    return undefined;
  }
};

type Media = Extract<ContentBlock, { data: string }>;
const isMedia = (block: ContentBlock): block is Media => block.type === 'image' || block.type === 'audio';

type Blob = Extract<ContentBlock, { type: 'resource' }> & { resource: { blob: string } };
const isBlob = (block: ContentBlock): block is Blob =>
  block.type === 'resource' && !('text' in block.resource) && typeof block.resource.blob === 'string';

/** Returns a block as text that a model can read. */
function readable(block: ContentBlock): string {
  if (block.type === 'text') return block.text;
  if (isMedia(block)) return `[${nameOf(block)}]`;
  if (isBlob(block)) return `[${nameOf(block)} ${sanitise(block.resource.uri)}]`;
  if (block.type === 'resource' && 'text' in block.resource)
    return `[${nameOf(block)} ${sanitise(block.resource.uri)}]\n${block.resource.text}`;
  return JSON.stringify(block);
}

/** Returns the bytes that a block counts towards the limit. */
function sizeOf(block: ContentBlock): number {
  if (block.type !== 'text') return Buffer.byteLength(JSON.stringify(block));
  return Math.max(MIN_BLOCK_BYTES, Buffer.byteLength(block.text) + remarksOf(block));
}

function nameOf(block: ContentBlock): string {
  const { mimeType } = block.type === 'resource' ? block.resource : (block as { mimeType?: unknown });
  const type = typeof mimeType === 'string' ? sanitise(mimeType, 80) : '';
  return `${block.type}${type === '' ? '' : ` (${type})`}`;
}

function cutMarker({
  handle,
  offset,
  totalChars,
  reader,
}: {
  handle: string | undefined;
  offset: number;
  totalChars: number;
  reader: Reader;
}): string {
  const shown = `[cut: ${count(offset)} of ${count(totalChars)} characters shown.`;
  if (handle === undefined) return `${shown} Ask the tool for less data.]`;
  return `${shown} To continue: ${readOnCall(reader, { handle, offset })}. To search, pass "find":"the text" instead of "offset". Stored for 10 minutes.]`;
}

const text = (words: string) => ({ type: 'text' as const, text: words });

/** Converts invalid content blocks to text: the SDK would reject the whole result otherwise. */
function toBlock(sent: unknown, patience: { values: number }): ContentBlock {
  if (isObject(sent) && isBareText(sent)) return text(sent.text);
  const value = isObject(sent) ? withoutLongRemarks(sent) : sent;
  const values = jsonSizeOf(value, Infinity, MAX_BLOCK_VALUES);
  patience.values -= values;
  if (values <= MAX_BLOCK_VALUES && patience.values > 0 && isSpecType.ContentBlock(value)) return value;
  if (isObject(value) && value['type'] === 'text' && typeof value['text'] === 'string')
    return text(value['text']);
  return text(typeof value === 'string' ? value : JSON.stringify(value));
}

/** Returns whether a block is a text without annotations, as most are: it needs no validation. */
function isBareText(block: Readonly<Record<string, unknown>>): block is { type: 'text'; text: string } {
  if (block['type'] !== 'text' || typeof block['text'] !== 'string') return false;
  let members = 0;
  for (const _name in block) if (++members > 2) return false;
  return true;
}

/** Drops a block's `annotations` and `_meta` if they are too long. */
function withoutLongRemarks(block: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const { annotations, _meta, ...others } = block;
  if (annotations === undefined && _meta === undefined) return block;
  return jsonSizeOf([annotations, _meta], 1, MAX_REMARK_CHARS) > MAX_REMARK_CHARS ? others : block;
}

/** Returns the bytes of a block's `annotations` and `_meta`. */
const remarksOf = ({ annotations, _meta }: ContentBlock): number =>
  annotations === undefined && _meta === undefined
    ? 0
    : Buffer.byteLength(JSON.stringify([annotations, _meta]));

const BINARY: ReadonlySet<unknown> = new Set(['image', 'audio', 'resource']);

/** Returns the text of a block that is not validated. */
function wordsOf(sent: unknown): string {
  if (typeof sent === 'string') return sent;
  if (isObject(sent) && typeof sent['text'] === 'string') return sent['text'];
  return isObject(sent) && BINARY.has(sent['type']) ? `[${String(sent['type'])}]` : JSON.stringify(sent);
}

/** Data in a result about the required sign-in. */
export interface SignIn {
  readonly kind: 'credentials' | 'oauth' | 'provider';
  readonly provider?: string | undefined;
  /** Such as `not_connected`. */
  readonly reason: string;
  /** Scopes, or names of values. */
  readonly missing: readonly string[];
  readonly missing_scopes?: readonly string[] | undefined;
  readonly auth_url: string;
  readonly expires_at: string;
}

interface Facts {
  readonly serverId: string;
  /** Absent: no tool was called. */
  readonly toolName?: string | undefined;
  readonly signIn?: SignIn | undefined;
  /** The handle of a truncated result. */
  readonly cut?: { readonly handle: string; readonly total_characters: number } | undefined;
  /** The server's own `_meta`. */
  readonly upstream?: unknown;
}

const PREFIX = 'switchboard/';
/** Returns the `_meta` key of one of Switchboard's fields. */
export const metaKey = (fact: string): string => `${PREFIX}${fact}`;
/** Labels of reserved prefixes: such keys concern the connection between two peers (MCP, "General fields: _meta"). */
const RESERVED_LABELS: ReadonlySet<string> = new Set(['modelcontextprotocol', 'mcp']);
const MAX_KEYS = 100;
const MAX_KEY_CHARS = 256;
const MAX_META_CHARS = 20_000;

/**
 * Returns the `_meta` of a `call_remote_tool` result: the server's own keys, if short and not reserved, and Switchboard's
 * data under `switchboard/`. No client shows it to a model.
 */
export function metaOf({ serverId, toolName, signIn, cut, upstream }: Facts): Record<string, unknown> {
  return {
    ...passedOn(upstream),
    [metaKey('server_id')]: serverId,
    ...(toolName === undefined ? {} : { [metaKey('tool_name')]: toolName }),
    ...(signIn === undefined ? {} : { [metaKey('sign_in')]: signIn }),
    ...(cut === undefined ? {} : { [metaKey('cut')]: cut }),
  };
}

function passedOn(meta: unknown): Record<string, unknown> {
  if (!isObject(meta)) return {};
  const entries: [string, unknown][] = [];
  let keys = 0;
  for (const key in meta) {
    if (++keys > MAX_KEYS) break;
    if (isPassedOn(key)) entries.push([key, meta[key]]);
  }
  const passed = Object.fromEntries(entries);
  return jsonSizeOf(passed, 1, MAX_META_CHARS) > MAX_META_CHARS ? {} : passed;
}

function isPassedOn(key: string): boolean {
  if (key.length > MAX_KEY_CHARS) return false;
  const prefix = key.slice(0, key.indexOf('/') + 1).toLowerCase();
  return (
    prefix !== PREFIX &&
    !prefix
      .slice(0, -1)
      .split('.')
      .some(label => RESERVED_LABELS.has(label))
  );
}
