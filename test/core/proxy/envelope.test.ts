import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  encodeHeader,
  legacyRequest,
  modernRequest,
  readMessage,
} from '../../../src/core/proxy/upstream/envelope.ts';

/** The server's side, as SDK v2 and the spec decode it. */
function decodeHeader(value: string): string {
  const match = /^=\?base64\?(.*)\?=$/.exec(value);
  return match ? Buffer.from(match[1] ?? '', 'base64').toString() : value;
}

describe('encodeHeader', () => {
  it('any text survives, as one visible ASCII header value', () => {
    const texts = fc.oneof(
      fc.string({ unit: 'grapheme' }),
      fc.string({ unit: 'binary' }).filter(text => text.isWellFormed()),
      fc.string({ unit: 'grapheme' }).map(text => `=?base64?${text}?=`),
      fc.constantFrom('', ' ', ' a', 'a ', 'a\r\nx-evil: 1', '\t', '=?BASE64?YQ==?='),
    );
    fc.assert(
      fc.property(texts, text => {
        const header = encodeHeader(text);
        expect(header).toMatch(/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/);
        expect(decodeHeader(header)).toBe(text);
      }),
      { numRuns: 1000 },
    );
  });

  it('plain names stay readable', () => {
    expect(encodeHeader('get_weather')).toBe('get_weather');
    expect(encodeHeader('two words')).toBe('two words');
    expect(encodeHeader('wetter für köln')).toBe('=?base64?d2V0dGVyIGbDvHIga8O2bG4=?=');
  });
});

describe('modernRequest', () => {
  const message = (...request: Parameters<typeof modernRequest>) =>
    JSON.parse(modernRequest(...request).body);

  it('puts the envelope beside the params, and keeps the caller`s own _meta', () => {
    const params = {
      name: 'a',
      _meta: { traceparent: 't', 'io.modelcontextprotocol/protocolVersion': '1999-01-01' },
    };
    expect(message(5, 'tools/call', params)).toEqual({
      jsonrpc: '2.0',
      id: 5,
      method: 'tools/call',
      params: {
        name: 'a',
        _meta: {
          traceparent: 't',
          'io.modelcontextprotocol/protocolVersion': '2026-07-28',
          'io.modelcontextprotocol/clientCapabilities': {},
          'io.modelcontextprotocol/clientInfo': { name: 'switchboard', version: expect.any(String) },
        },
      },
    });
  });

  it('passes on the capabilities the caller declares, and none beyond', () => {
    const _meta = { 'io.modelcontextprotocol/clientCapabilities': { elicitation: {} } };
    expect(message(1, 'tools/call', { _meta }).params._meta).toMatchObject(_meta);
    const broken = { 'io.modelcontextprotocol/clientCapabilities': 'all' };
    expect(message(1, 'tools/call', { _meta: broken }).params._meta).toMatchObject({
      'io.modelcontextprotocol/clientCapabilities': {},
    });
  });

  it.each([
    ['tools/call', { name: 'a' }, 'a'],
    ['prompts/get', { name: 'b' }, 'b'],
    ['resources/read', { uri: 'file:///ü' }, '=?base64?ZmlsZTovLy/DvA==?='],
    ['tools/list', { name: 'a' }, undefined],
    ['tools/call', { name: 7 }, undefined],
  ])('%s %j: Mcp-Name is %s', (method, params, name) => {
    const { headers } = modernRequest(1, method, params);
    expect(headers).toMatchObject({ 'mcp-protocol-version': '2026-07-28', 'mcp-method': method });
    expect(headers['mcp-name']).toBe(name);
  });

  it('mirrors the arguments whose schema asks for it', () => {
    const schema = {
      properties: {
        region: { type: 'string', 'x-mcp-header': 'Region' },
        where: {
          properties: { zoom: { type: 'integer', 'x-mcp-header': 'Zoom' }, on: { 'x-mcp-header': 'On' } },
        },
        absent: { 'x-mcp-header': 'Absent' },
        nothing: { 'x-mcp-header': 'Nothing' },
        list: { 'x-mcp-header': 'List' },
        evil: { 'x-mcp-header': 'a: b\r\nc' },
      },
    };
    const args = { region: 'köln', where: { zoom: 3, on: false }, nothing: null, list: [1], evil: 'x' };
    const headers = modernRequest(1, 'tools/call', { name: 'a', arguments: args }, schema).headers;
    expect(
      Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('mcp-param-'))),
    ).toEqual({
      'mcp-param-region': '=?base64?a8O2bG4=?=',
      'mcp-param-zoom': '3',
      'mcp-param-on': 'false',
    });
  });
});

describe('legacyRequest', () => {
  it('puts our trace context in the place of the caller`s in _meta, and adds none where there was none', () => {
    const session = { sessionId: 's', version: '2025-11-25' };
    const sent = (meta: unknown, trace?: Record<string, string>) => {
      const outgoing = legacyRequest(session, 1, 'tools/call', { _meta: meta }, trace);
      return { meta: JSON.parse(outgoing.body).params._meta, traceparent: outgoing.headers['traceparent'] };
    };
    const theirs = { traceparent: 'theirs', tracestate: 'theirs', progressToken: 1 };
    expect(sent(theirs, { traceparent: 'ours' })).toEqual({
      meta: { traceparent: 'ours', progressToken: 1 },
      traceparent: 'ours',
    });
    expect(sent({ progressToken: 1 }, { traceparent: 'ours' }).meta).toEqual({ progressToken: 1 });
    expect(sent(theirs)).toEqual({ meta: theirs, traceparent: undefined });
  });
});

describe('readMessage', () => {
  it.each([
    [{ id: 1, result: null }, 'answer'],
    [{ id: '1', result: 1 }, 'answer'],
    [{ id: 1, result: 1, error: null }, 'answer'],
    [{ id: null, error: { code: 1, message: '' } }, 'answer'],
    [{ error: { code: 1, message: '' } }, 'answer'],
    [{ id: 2, error: { code: 1, message: '' } }, 'other-id'],
    [{ id: null, result: 1 }, 'other-id'],
    [{ result: 1 }, 'other-id'],
    [{ id: 1 }, 'invalid'],
    [{ id: 1, error: { code: 'x', message: '' } }, 'invalid'],
    [{ id: 1, error: { code: 1.5, message: '' } }, 'invalid'],
    [{ method: 'notifications/x' }, 'notification'],
    [{ id: 1, method: 'ping' }, 'request'],
    [{ id: null, method: 'ping' }, 'notification'],
    [[], 'invalid'],
    ['x', 'invalid'],
    [null, 'invalid'],
  ])('%j is %s', (message, kind) => {
    expect(readMessage(message, 1).kind).toBe(kind);
  });
});
