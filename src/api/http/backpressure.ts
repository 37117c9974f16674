import type { ServerResponse } from 'node:http';
import { SwitchboardError } from '../../errors.ts';
import type { HeldBytes } from './memory-budget.ts';

/** What is smaller, the sockets' own buffers take about whole. */
const SMALL_BYTES = 64 * 1024;

/**
 * Answers that were sent and not taken yet: a client that asks for large ones and reads none would have them all kept for it.
 * Counts one that is about to be sent. @throws SwitchboardError `unavailable`.
 */
export function countAnswer(answers: HeldBytes, response: ServerResponse, keyId: string, text: string): void {
  const bytes = Buffer.byteLength(text);
  if (bytes >= SMALL_BYTES && !answers.hold(response, keyId)(bytes)) throw tooMuchUnread();
}

/** What an MCP handler writes its answer to: counted as it is written; where it is too much, the connection ends. */
export function countedAnswer(answers: HeldBytes, response: ServerResponse, keyId: string) {
  let hold: ReturnType<HeldBytes['hold']> | undefined;
  const hasRoom = (bytes: number) => {
    hold ??= answers.hold(response, keyId);
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
      if (chunk.length >= SMALL_BYTES && !hasRoom(chunk.length)) response.destroy();
      return response.write(chunk);
    },
    end: () => response.end(),
  };
}

/** Whether the connection lasts is for its client, its server and Node to say; the handler's event streams would say that it does. */
const withoutConnection = (headers: Readonly<Record<string, string>>) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => name.toLowerCase() !== 'connection'));

const tooMuchUnread = () =>
  new SwitchboardError(
    'unavailable',
    'Too much of earlier answers has not been read yet, so this one was dropped. Read them, or close their connections.',
    { retryAfterSec: 1, retryable: false },
  );
