/** A user's browser for programs: they open it as they open a real one, and it signs in, allows what is asked, and goes back to them. */
import { chmod, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from '../../test/support/program.ts';
import { UserAgent } from '../../test/support/user-agent.ts';

export interface Browser extends AsyncDisposable {
  /** The environment of a program that opens it. `SIGN_IN` is a command that also waits, and prints where it went back to. */
  readonly env: Readonly<Record<string, string>>;
  /** Signs in at the address; resolves to the one that leads back to the program. */
  visit(authUrl: string): Promise<string>;
  /** The addresses at which it has been opened. */
  opened(): Promise<readonly string[]>;
  /** What it has to say after a failure. */
  story(): Promise<string>;
}

interface User {
  /** The public address of Switchboard. */
  readonly origin: string;
  /** A key that makes links for the user. */
  readonly key: string;
  readonly user: string;
}

const ARRIVAL_MS = 5_000;
const AGAIN_MS = 200;

/** The commands that programs try, one after another. */
const COMMANDS = ['xdg-open', 'open', 'sensible-browser', 'x-www-browser', 'www-browser'];

export async function createBrowser(user: User): Promise<Browser> {
  const { path: folder, ...created } = temporaryFolder();
  const visits = path.join(folder, 'visits');
  const log = path.join(folder, 'log');
  const settings = path.join(folder, 'user.json');
  await Promise.all([visits, log].map(file => writeFile(file, '')));
  await writeFile(settings, JSON.stringify(user));
  const signIn = path.join(folder, 'sign-in');
  const script = async (file: string, line: string) => {
    await writeFile(file, `#!/bin/sh\n${line}\n`);
    await chmod(file, 0o755);
  };
  const program = [process.execPath, fileURLToPath(import.meta.url), settings].map(word => `'${word}'`);
  await script(signIn, `echo "$1" >> '${visits}'\nexec ${program.join(' ')} "$1"`);
  for (const command of COMMANDS)
    await script(path.join(folder, command), `'${signIn}' "$1" </dev/null >>'${log}' 2>&1 &`);
  return {
    env: {
      PATH: `${folder}:${process.env['PATH'] ?? ''}`,
      BROWSER: path.join(folder, 'xdg-open'),
      // Some open no browser where there seems to be no screen.
      DISPLAY: ':0',
      SIGN_IN: signIn,
    },
    async visit(authUrl) {
      await writeFile(visits, `${authUrl}\n`, { flag: 'a' });
      return signInAs(user, authUrl);
    },
    opened: async () => (await readFile(visits, 'utf8')).split('\n').filter(line => line !== ''),
    story: () => readFile(log, 'utf8'),
    [Symbol.asyncDispose]: created[Symbol.asyncDispose],
  };
}

async function signInAs({ origin, key, user }: User, authUrl: string): Promise<string> {
  const response = await fetch(`${origin}/v1/identity/manage`, {
    method: 'POST',
    headers: { 'X-API-Key': key, 'content-type': 'application/json' },
    body: JSON.stringify({ user_id: user }),
  });
  const { url: link } = (await response.json()) as { url: string };
  const agent = new UserAgent();
  const who = await agent.follow(await agent.get(authUrl));
  const consent = await agent.follow(await agent.submit(who, { fields: { link } }));
  let page = await agent.submit(consent, { fields: { answer: 'allow' } });
  for (;;) {
    const back = page.headers.get('location');
    if (back === null) throw new Error(`no way back to the client: ${page.status} ${page.html}`);
    if (!back.startsWith(`${origin}/`)) {
      await arrive(agent, back);
      return back;
    }
    page = await agent.get(back);
  }
}

/** Goes back to the program. It may listen only a moment after it has opened the browser; one that only prints the address never does. */
async function arrive(agent: UserAgent, back: string): Promise<void> {
  for (const end = Date.now() + ARRIVAL_MS; Date.now() < end; await delay(AGAIN_MS)) {
    const isThere = await agent.get(back).then(
      () => true,
      () => false,
    );
    if (isThere) return;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [, , settings = '', authUrl = ''] = process.argv;
  console.log(await signInAs(JSON.parse(await readFile(settings, 'utf8')) as User, authUrl));
}
