import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { lineOf } from '../../src/platform/telemetry/log.ts';

const LOG = new URL('../../src/platform/telemetry/log.ts', import.meta.url).href;
const TIME = '2026-01-31T12:34:56.789Z';
const lineFor = (record: object, hasColours = false) =>
  lineOf(JSON.stringify({ level: 30, time: TIME, ...record }), hasColours);

/** Logs a request and a warning in a process of its own, and returns the command that does so. */
const commandWith = (format: 'json' | 'text' | undefined, hasColours: boolean) => {
  const settings = JSON.stringify({ level: 'info', format, hasColours });
  const source = `import { openLog } from '${LOG}'; const log = openLog(${settings}); log.info({ method: 'GET', path: '/v1/x', status: 404, durationMs: 1.2, requestId: 'req_1' }, 'request'); log.warn({ api_key: 'a-secret' }, 'lost it');`;
  return [process.execPath, '--input-type=module', '-e', source];
};

const stderrOf = (format: 'json' | 'text' | undefined) => {
  const [program = '', ...args] = commandWith(format, true);
  return spawnSync(program, args, { encoding: 'utf8' }).stderr;
};

const onTerminal = (format: 'json' | 'text' | undefined, hasColours: boolean) => {
  const command = commandWith(format, hasColours)
    .map(part => `'${part.replaceAll("'", String.raw`'\''`)}'`)
    .join(' ');
  return spawnSync('script', ['-qec', command, '/dev/null'], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
    timeout: 60_000,
  }).stdout;
};
const hasScript = spawnSync('script', ['--version'], { stdio: 'ignore' }).status === 0;

describe('lineOf', () => {
  it('shows a request by method, path, status, time and error code', () => {
    const request = { method: 'POST', path: '/v1/search', status: 200, durationMs: 12.3, msg: 'request' };
    expect(lineFor({ ...request, requestId: 'req_1', tenantId: 'local', keyId: 'k' })).toMatch(
      /^\d\d:\d\d:\d\d POST \/v1\/search 200 12 ms\n$/,
    );
    expect(lineFor({ ...request, status: 429, code: 'rate_limited' })).toMatch(/ 429 12 ms rate_limited\n$/);
    expect(lineFor({ ...request, aborted: true })).toMatch(/ aborted 12 ms\n$/);
  });

  it('shows the JSON-RPC method of a request after its path', () => {
    const rpc = 'tools/call call_remote_tool notes/create_note';
    const request = { method: 'POST', path: '/mcp', rpc, status: 200, durationMs: 12.3, msg: 'request' };
    expect(lineFor(request)).toMatch(
      / POST \/mcp tools\/call call_remote_tool notes\/create_note 200 12 ms\n$/,
    );
  });

  it('starts an audit line with the event', () => {
    expect(lineFor({ event: 'key_created', outcome: 'ok', tenantId: 'local', msg: 'audit event' })).toMatch(
      / audit: key_created \(outcome ok, tenantId local\)\n$/,
    );
  });

  it.each([
    [20, 'debug: told'],
    [30, 'told'],
    [40, 'warning: told'],
    [50, 'error: told'],
    [60, 'error: told'],
  ])('names the level %i in words', (level, text) => {
    expect(lineFor({ level, msg: 'told' })).toMatch(new RegExp(String.raw`^\d\d:\d\d:\d\d ${text}\n$`));
  });

  it("shows an event's fields and the messages of its error, without the stack", () => {
    const err = { type: 'Error', message: 'refused', stack: 'Error: refused\n    at x', cause: 'no route' };
    expect(lineFor({ level: 40, err, provider: 'acme', msg: 'lost it' })).toMatch(
      / warning: lost it \(refused, no route, provider acme\)\n$/,
    );
  });

  it('lets nothing through that moves the cursor or turns text around, and cuts long values', () => {
    const line = lineFor({ msg: 'a\u001B[2Jb\nc\u202Ed', long: 'x'.repeat(1_000) });
    expect(line).toContain('a?[2Jb?c?d');
    expect(line.length).toBeLessThan(200);
  });

  it('has colours only where they are wanted', () => {
    expect(lineFor({ msg: 'told' })).not.toContain('\u001B');
    expect(lineFor({ msg: 'told' }, true)).toContain('\u001B[90m');
  });
});

describe('the log of a process', () => {
  it('is JSON if stderr is not a terminal, and lines without colours with LOG_FORMAT=text', () => {
    const json = stderrOf(undefined).trim().split('\n');
    expect(json.map(line => (JSON.parse(line) as { msg: string }).msg)).toEqual(['request', 'lost it']);
    expect(stderrOf('text')).toMatch(
      /^\S+ GET \/v1\/x 404 1 ms\n\S+ warning: lost it \(api_key \[redacted\]\)\n$/,
    );
  });

  it.skipIf(!hasScript)(
    'is lines with colours on a terminal, unless NO_COLOR or LOG_FORMAT=json is set',
    () => {
      expect(onTerminal(undefined, true)).toContain('\u001B[33m404\u001B[0m 1 ms');
      expect(onTerminal(undefined, false)).toMatch(/^\S+ GET \/v1\/x 404 1 ms\r\n/);
      expect(onTerminal('json', true)).toMatch(/^\{"level":30/);
    },
  );
});
