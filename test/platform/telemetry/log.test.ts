import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';

const LOG = new URL('../../../src/platform/telemetry/log.ts', import.meta.url).href;

/** The messages on stderr of a process that runs this with a `log`, and how it ended. */
function messagesOf(script: string): { messages: string[]; end: number | string | null } {
  const source = `import { createLog } from ${JSON.stringify(LOG)}; const log = createLog('info'); ${script}`;
  const { stderr, status, signal } = spawnSync(process.execPath, ['--input-type=module', '-e', source], {
    encoding: 'utf8',
  });
  const lines = stderr.split('\n').filter(line => line.startsWith('{'));
  return { messages: lines.map(line => (JSON.parse(line) as { msg: string }).msg), end: status ?? signal };
}

const LINES = "log.info('one'); log.child({}).info('two'); log.warn('three'); log.info('four');";

describe('the log on stderr', () => {
  it.each([
    ['comes to its end', '', 0],
    ['exits', 'process.exit(3);', 3],
    ['throws', "throw new Error('fatal');", 1],
  ])('has every line, in order, of a process that %s', (_, ending, end) => {
    expect(messagesOf(LINES + ending)).toEqual({ messages: ['one', 'two', 'three', 'four'], end });
  });

  it('has what came before and with a warning, and a tenth of a second ago, of a process that is killed', () => {
    const kill = "process.kill(process.pid, 'SIGKILL');";
    expect(messagesOf(LINES + kill)).toEqual({ messages: ['one', 'two', 'three'], end: 'SIGKILL' });
    expect(messagesOf(`${LINES} setTimeout(() => ${kill.slice(0, -1)}, 200);`)).toEqual({
      messages: ['one', 'two', 'three', 'four'],
      end: 'SIGKILL',
    });
  });

  it('keeps the order and every line where many are written at once', () => {
    const { messages } = messagesOf('for (let at = 0; at < 5_000; at++) log.info(String(at));');
    expect(messages).toEqual(Array.from({ length: 5_000 }, (_, at) => String(at)));
  });
});
