import { randomBytes } from 'node:crypto';
import type { ServerContext } from '@modelcontextprotocol/server';
import { describe, expect, it } from 'vitest';
import type { Caller } from '../../src/core/access/caller.ts';
import { Sealing } from '../../src/platform/sealing.ts';
import { Conversation } from '../../src/api/mcp/input-required.ts';

const sealing = new Sealing([{ id: 'k1', key: randomBytes(32) }]);
const caller = { tenantId: 'ten_a', keyId: 'key_a' } as Caller;
const META = 'io.modelcontextprotocol/clientCapabilities';
const context = (requestState?: string) =>
  ({ mcpReq: { envelope: { [META]: {} }, requestState: () => requestState } }) as unknown as ServerContext;

/** A call of a tool whose arguments tell whether they have been walked. */
function call(tool_name: string, requestState?: string) {
  const walked = { yet: false };
  const large = {
    get member() {
      walked.yet = true;
      return 1;
    },
  };
  const remote = { server_id: 's', tool_name, arguments: { large } };
  const received = context(requestState);
  const conversation = new Conversation({ sealing, era: 'modern', caller }, remote, received);
  return { walked, conversation, resume: () => conversation.resume(received) };
}

describe('the arguments of a call, up to 4 MiB, are hashed', () => {
  const asks = { resultType: 'input_required', requestState: 'theirs' } as const;
  const stateOf = (result: object) => String('requestState' in result ? result.requestState : '');

  it('not for a call that asks nothing', () => {
    const { walked, resume } = call('a');
    expect(resume()).toBeUndefined();
    expect(walked.yet).toBe(false);
  });

  it('for a call that asks for input, and for the answer', () => {
    const first = call('a');
    const state = stateOf(first.conversation.ask(asks));
    expect(first.walked.yet).toBe(true);
    const second = call('a', state);
    expect(second.resume()).toEqual({ requestState: 'theirs' });
    expect(second.walked.yet).toBe(true);
  });

  it('not for a state that was not issued for this tool', () => {
    const state = stateOf(call('another').conversation.ask(asks));
    for (const wrong of ['made up', state, `${state}x`]) {
      const { walked, resume } = call('a', wrong);
      expect(resume).toThrow('belongs to another call');
      expect(walked.yet).toBe(false);
    }
  });
});
