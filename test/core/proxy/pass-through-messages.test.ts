import { describe, expect, it } from 'vitest';
import { callOf, messagesIn, methodOf } from '../../../src/core/proxy/pass-through-messages.ts';

describe('the messages of a batch are counted', () => {
  it.each([
    ['{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":[{},{}]}}', 1],
    ['[{"method":"a","params":{"x":[{},[]]}},{"method":"b"}]', 2],
    [' \n[ {"x":"}{[\\"{"} , {}, {} ]', 3],
    ['\uFEFF[{},{}]', 2],
    ['[[{},{}],{}]', 2],
    ['[]', 1],
    ['[1,2]', 1],
    ['[{"unclosed', 1],
    ['', 1],
  ])('%s', (body, messages) => {
    expect(messagesIn(Buffer.from(body))).toBe(messages);
  });
});

describe('the method and the tool that a user is told of', () => {
  it.each([
    ['{"method":"tools/call","params":{"arguments":{"name":"no"},"name":"echo"}}', 'tools/call', 'echo'],
    ['\uFEFF{"params":{"name":"echo"},"method":"tools/call"}', 'tools/call', 'echo'],
    ['{"method":"prompts/get","params":{"name":"no"}}', 'prompts/get', undefined],
    ['{"method":"tools/call","params":{"name":7}}', 'tools/call', undefined],
    // A server that reads JSON as JavaScript does calls these.
    ['{"method":"ping","params":{"name":"evil"},"method":"tools/call"}', 'tools/call', 'evil'],
    ['{"method":"tools/call","params":{"name":"good","name":"evil"}}', 'tools/call', 'evil'],
    [String.raw`{"m\u0065thod":"tools\/c\u0061ll","params":{"n\u0061me":"evil"}}`, 'tools/call', 'evil'],
    ['{"result":{"method":"no"},"id":1}', undefined, undefined],
    ['[{"method":"batch"}]', undefined, undefined],
    ['{"method":"tools/call", not json', 'tools/call', undefined],
    ['', undefined, undefined],
  ])('%s', (body, method, tool) => {
    expect(callOf(Buffer.from(body))).toEqual({ method, tool });
  });
});

describe('the method of a message is read', () => {
  it.each([
    ['{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}', 'tools/call'],
    [' {\n "params" : {"a":[1,{"method":"no"}]} , "method" :\t"yes" }', 'yes'],
    ['{"id":"method","x":"\\"method\\":\\"no\\"","y":"\\\\","method":"yes"}', 'yes'],
    ['{"method":"grüße/x"}', 'grüße/x'],
    ['{"result":{"method":"no"},"id":1}', undefined],
    ['{"id":1,"result":"\\"method\\":\\"no\\""}', undefined],
    ['{"method":7}', undefined],
    ['["method","x"]', undefined],
    ['[{"method":"batch"}]', undefined],
    ['"method":"x"', undefined],
    ['{"method":"unclosed', undefined],
    ['{"method"', undefined],
    ['{"a":"unclosed, "method":"x"', undefined],
    ['', undefined],
    ['not json', undefined],
  ])('%s', (body, method) => {
    expect(methodOf(Buffer.from(body))).toBe(method);
  });

  it('in one pass, whatever the body', () => {
    const quotes = Buffer.alloc(4 * 1024 * 1024, '\\"');
    const before = performance.now();
    expect(methodOf(Buffer.concat([Buffer.from('{"a":"'), quotes]))).toBeUndefined();
    expect(
      methodOf(Buffer.concat([Buffer.from('{"a":"'), Buffer.alloc(4 * 1024 * 1024, '\\')])),
    ).toBeUndefined();
    // Quadratic time would be hours.
    expect(performance.now() - before).toBeLessThan(10_000);
  });
});
