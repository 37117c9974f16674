import { SwitchboardError } from '../../../errors.ts';
import { isLegacyVersion } from './era.ts';
import { sanitise } from '../../../platform/sanitize.ts';
import { brokeProtocol } from './failures.ts';
import { isObject } from './json.ts';
import type { RpcReply } from './rpc.ts';

/** Nothing at the server's URL takes `initialize` by POST: perhaps it speaks HTTP+SSE (MCP 2025-11-25, Backwards compatibility). */
export class NoHandshake extends SwitchboardError {
  readonly httpStatus: number;
  /** What the refusal is by itself, in the server's own words where it has some. */
  readonly failure: SwitchboardError;

  constructor(httpStatus: number, failure: SwitchboardError) {
    super('upstream_protocol', `The MCP server answered HTTP ${httpStatus} to initialize.`);
    this.httpStatus = httpStatus;
    this.failure = failure;
  }
}

/** A JSON-RPC error in answer to `initialize`: whoever sends it speaks the protocol, and does not want us. */
export class HandshakeRefused extends SwitchboardError {
  constructor(message: string) {
    super('upstream_protocol', `The MCP server refused initialize: ${sanitise(message)}.`);
  }
}

/** The protocol version in the answer to `initialize`. @throws SwitchboardError when there is none to go on with. */
export function readVersion({ status, answer, problem }: RpcReply): string {
  if (!answer) {
    const failure = problem();
    throw status === 400 || status === 404 || status === 405 ? new NoHandshake(status, failure) : failure;
  }
  if ('error' in answer) {
    throw new HandshakeRefused(answer.error.message);
  }
  const version = isObject(answer.result) ? answer.result['protocolVersion'] : undefined;
  if (typeof version === 'string' && isLegacyVersion(version)) return version;
  throw brokeProtocol('answered initialize without a protocol version that is supported here');
}

/** Visible ASCII only (2025-11-25, Session management). */
export function readSessionId(header: string | string[] | undefined): string | undefined {
  if (header === undefined) return undefined;
  if (typeof header === 'string' && /^[\x21-\x7e]{1,1024}$/.test(header)) return header;
  throw brokeProtocol('sent a session id that is not visible ASCII');
}
