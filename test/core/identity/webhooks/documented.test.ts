import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { CONNECTION_EVENTS } from '../../../../src/core/identity/webhooks/events.ts';
import { temporaryFolder } from '../../../support/program.ts';
import { startTestSwitchboard } from '../../../support/switchboard.ts';
import { startReceiver } from '../../../support/webhook-receiver.ts';

/** The code block of a language in docs/webhooks.md. */
function example(language: string): string {
  const page = readFileSync('docs/webhooks.md', 'utf8');
  const [, code] = new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, 'm').exec(page) ?? [];
  if (code === undefined) throw new Error(`docs/webhooks.md has no example in ${language}`);
  return code;
}

/** Programs that read a list of requests and print for each the type of its event, or `refused`. */
const PROGRAMS = [
  {
    language: 'js',
    file: 'verify.mjs',
    command: process.execPath,
    main: `
import { readFileSync } from 'node:fs';
for (const { secret, headers, body } of JSON.parse(readFileSync(process.argv[2], 'utf8'))) {
  try { console.log(verifyWebhook(secret, headers, body).type); } catch { console.log('refused'); }
}`,
  },
  {
    language: 'python',
    file: 'verify.py',
    command: 'python3',
    main: `
import sys
for one in json.load(open(sys.argv[1])):
    try:
        print(verify_webhook(one["secret"], one["headers"], one["body"].encode())["type"])
    except ValueError:
        print("refused")`,
  },
];

const has = (command: string) =>
  promisify(execFile)(command, ['--version']).then(
    () => true,
    () => false,
  );

describe('docs/webhooks.md', () => {
  it('lists every event of a connection with its reasons', () => {
    const rows = readFileSync('docs/webhooks.md', 'utf8').matchAll(/^\| `connection\.(\w+)`.*\|(.*)\|$/gm);
    const listed = [...rows].map(([, event = '', reasons = '']) => [
      event,
      [...reasons.matchAll(/`(\w+)`/g)].map(([, reason]) => reason),
    ]);
    expect(Object.fromEntries(listed)).toEqual(CONNECTION_EVENTS);
  });

  it.for(PROGRAMS)('verifies an event in $language, and nothing that was changed', async (program, ctx) => {
    // Python is not needed for anything else.
    ctx.skip(!(await has(program.command)));
    await using receiver = await startReceiver();
    await using sb = await startTestSwitchboard();
    const { json: set } = await sb.admin.request('PUT', '/tenants/local/webhook', { url: receiver.url });
    const { json: rotated } = await sb.admin.request('POST', '/tenants/local/webhook/rotate', {
      overlap_sec: 60,
    });
    await sb.admin.request('POST', '/tenants/local/webhook/test');
    const [delivery] = receiver.all;
    if (!delivery) throw new Error('the test was not delivered');
    const { headers, body } = delivery;
    const old = { ...headers, 'webhook-timestamp': String(Number(headers['webhook-timestamp']) - 600) };
    const requests = [
      { secret: set.secret, headers, body },
      { secret: rotated.secret, headers, body },
      { secret: set.secret.replace(/.{8}=$/, 'AAAAAAA='), headers, body },
      { secret: set.secret, headers, body: body.replace('webhook.test', 'connection.created') },
      { secret: set.secret, headers: { ...headers, 'webhook-id': 'evt_other' }, body },
      { secret: set.secret, headers: old, body },
      { secret: set.secret, headers: { ...headers, 'webhook-signature': 'v1,' }, body },
    ];
    await using folder = temporaryFolder();
    const [code, input] = [program.file, 'requests.json'].map(name => path.join(folder.path, name)) as [
      string,
      string,
    ];
    await writeFile(code, example(program.language) + program.main);
    await writeFile(input, JSON.stringify(requests));
    const { stdout } = await promisify(execFile)(program.command, [code, input]);
    expect(stdout.trim().split('\n')).toEqual([
      'webhook.test',
      'webhook.test',
      ...Array.from({ length: 5 }, () => 'refused'),
    ]);
  });
});
