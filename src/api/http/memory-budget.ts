import type { ServerResponse } from 'node:http';
import { getHeapStatistics } from 'node:v8';
import { SwitchboardError } from '../../errors.ts';

const MIB = 1024 * 1024;
/** The sockets' own buffers take smaller answers about whole. */
const SMALL_ANSWER_BYTES = 64 * 1024;

export interface MemoryLimits {
  readonly maxBytesPerKey: number;
  /** For all keys together. */
  readonly maxBytes: number;
}

/** Returns limits by the heap's: parsed data takes several times its bytes, so all together may come to a sixteenth of the heap. */
export function defaultMemoryLimits(heapLimitBytes = getHeapStatistics().heap_size_limit): MemoryLimits {
  const maxBytes = Math.min(256 * MIB, Math.max(32 * MIB, Math.floor(heapLimitBytes / 16)));
  return { maxBytes, maxBytesPerKey: Math.floor(maxBytes / 4) };
}

/** Counts further bytes. Returns false where there is no room for them; then they are not counted. */
type Hold = (bytes: number) => boolean;

/**
 * Bounds, for each key and in all, the bytes that are kept for requests until their responses are closed: bodies under way, and
 * answers that their clients have not read.
 */
export class MemoryBudget {
  readonly #byKey = new Map<string, number>();
  readonly #limits: MemoryLimits;
  #bytes = 0;

  constructor(limits: MemoryLimits) {
    this.#limits = limits;
  }

  hold(response: ServerResponse, keyId: string): Hold {
    let held = 0;
    response.once('close', () => this.#add(keyId, -held));
    return bytes => {
      // A closed response never closes again, so nothing would be given back.
      if (response.closed) return true;
      if (!this.#hasRoom(keyId, bytes)) return false;
      held += bytes;
      this.#add(keyId, bytes);
      return true;
    };
  }

  #hasRoom(keyId: string, bytes: number): boolean {
    const { maxBytesPerKey, maxBytes } = this.#limits;
    return (this.#byKey.get(keyId) ?? 0) + bytes <= maxBytesPerKey && this.#bytes + bytes <= maxBytes;
  }

  #add(keyId: string, bytes: number): void {
    this.#bytes += bytes;
    const ofKey = (this.#byKey.get(keyId) ?? 0) + bytes;
    if (ofKey > 0) this.#byKey.set(keyId, ofKey);
    else this.#byKey.delete(keyId);
  }
}

/**
 * Counts an answer that is about to be sent. A client that asks for large answers and reads none would have them all kept for it.
 * @throws SwitchboardError `unavailable`.
 */
export function holdAnswer(
  budget: MemoryBudget,
  response: ServerResponse,
  keyId: string,
  text: string,
): void {
  const bytes = Buffer.byteLength(text);
  if (bytes < SMALL_ANSWER_BYTES || budget.hold(response, keyId)(bytes)) return;
  throw new SwitchboardError(
    'unavailable',
    'Too much of earlier answers has not been read yet, so this one was dropped. Read them, or close their connections.',
    { retryAfterSec: 1, retryable: false },
  );
}

/** Returns what an MCP handler writes its answer to. It is counted as it is written; where it is too much, the connection ends. */
export function countedAnswer(budget: MemoryBudget, response: ServerResponse, keyId: string) {
  let hold: Hold | undefined;
  const hasRoom = (bytes: number) => {
    hold ??= budget.hold(response, keyId);
    return hold(bytes);
  };
  return {
    get destroyed() {
      return response.destroyed;
    },
    on: response.on.bind(response),
    writeHead: (status: number, headers?: Record<string, string>) =>
      response.writeHead(status, headers && withoutConnection(headers)),
    write(chunk: string | Uint8Array) {
      if (chunk.length >= SMALL_ANSWER_BYTES && !hasRoom(chunk.length)) response.destroy();
      return response.write(chunk);
    },
    end: () => response.end(),
  };
}

/** Drops the Connection header: the handler's event streams would keep alive what its client, its server or Node wants to close. */
const withoutConnection = (headers: Readonly<Record<string, string>>) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => name.toLowerCase() !== 'connection'));
