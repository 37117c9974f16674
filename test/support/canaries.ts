import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { sql } from 'drizzle-orm';
import { vi } from 'vitest';
import { rows, type Database } from '../../src/platform/database/database.ts';
import type { IdentityUnderTest } from './identity.ts';
import { findPostgres } from './postgres-server.ts';

/** One answer of Switchboard, and the request's path. */
interface Heard {
  readonly method: string;
  readonly path: string;
  readonly status: number;
  readonly text: string;
}

/** The kinds of secrets by their form. What a provider issues has none of its own and is known from the provider. */
export const FORMS: Readonly<Record<string, RegExp>> = {
  session: /\bses_[\w-]{43}/g,
  refresh: /\bsbr_[\w-]{43}/g,
  link: /\blink_[\w-]{43}/g,
  done: /\bdone_[\w-]{43}/g,
  code: /\bcode_[\w-]{43}/g,
  page: /\bpage_[\w-]{43}/g,
  cookie: /\bweb_[\w-]{43}/g,
  identityToken: /\beyJ[\w-]+\.[\w-]+\.[\w-]+/g,
  state: /(?<=[?&]state=)[\w-]{43}/g,
  nonce: /(?<=[?&]nonce=)[\w-]{43}/g,
};
type Kind = string;

/** The answers that hand a secret out, and what they may hand out. No other answer may have any. */
const HANDS_OUT: readonly (readonly [
  request: RegExp,
  statuses: readonly number[],
  kinds: readonly Kind[],
])[] = [
  [/^POST \/v1\/identity\/sessions$/, [200], ['session', 'state', 'nonce', 'link']],
  [/^POST \/v1\/mcp\/(call|tools\/call)$/, [403], ['session', 'state', 'nonce', 'link']],
  [/^POST \/v1\/identity\/(token|refresh)$/, [200], ['identityToken', 'refresh']],
  [/^POST \/v1\/identity\/manage$/, [200], ['page']],
  // Pages: on to the next one, and a form's address is the page's own.
  [/^GET \/connect\//, [200], ['link', 'cookie']],
  [/^POST \/connect\//, [303], ['state', 'nonce']],
  [/^GET \/oauth\/(callback\/|return(\/|$))/, [303], ['done', 'code', 'session', 'cookie']],
  [/^(GET|POST) \/oauth\/done\//, [200, 303], ['done']],
  [/^GET \/manage\/page_/, [200], ['page']],
  [/^POST \/manage\/page_/, [303], ['cookie']],
  [/^POST \/manage\/connect$/, [303], ['link', 'cookie']],
  [/^GET \/manage\/sign-in\//, [200], ['cookie']],
  [/^POST \/manage\/sign-in\//, [303], ['state', 'nonce']],
];

/** A refusal names the field, the provider or the server that its own request named wrongly: to who sent it, and to nobody else. */
const OWN_WORDS = /(?:Unknown field|provider:|No server has the id) \\"[\w.-]+\\"/g;

/** Secrets that were handed out or seen, and where they may be. */
export class Canaries {
  readonly #kinds = new Map<string, Kind>();
  readonly heard: Heard[] = [];

  add(kind: Kind, ...secrets: readonly string[]): void {
    for (const secret of secrets) if (!this.#kinds.has(secret)) this.#kinds.set(secret, kind);
  }

  hear(heard: Heard): void {
    this.heard.push(heard);
    for (const [kind, form] of Object.entries(FORMS)) this.add(kind, ...(heard.text.match(form) ?? []));
  }

  count(kind: Kind): number {
    return [...this.#kinds.values()].filter(one => one === kind).length;
  }

  /** What is found of the secrets in a text, in whichever way it is written there. */
  in(text: string, allowed: readonly Kind[] = []): string[] {
    const found: string[] = [];
    for (const [secret, kind] of this.#kinds) {
      if (allowed.includes(kind)) continue;
      const form = formsOf(secret).find(one => text.includes(one));
      if (form !== undefined) found.push(`${kind} ${secret.slice(0, 12)}… at ${around(text, form)}`);
    }
    return found;
  }

  /** What the answers that were heard say of secrets that they may not hand out. */
  inAnswers(): string[] {
    return this.heard.flatMap(({ method, path: at, status, text }) => {
      const request = `${method} ${at}`;
      const handed = HANDS_OUT.filter(([which, on]) => which.test(request) && on.includes(status));
      const allowed = handed.flatMap(([, , kinds]) => kinds);
      return this.in(text.replaceAll(OWN_WORDS, ''), allowed).map(leak => `${request} -> ${status}: ${leak}`);
    });
  }
}

const around = (text: string, found: string) => {
  const at = text.indexOf(found);
  return JSON.stringify(text.slice(Math.max(0, at - 200), at + 40));
};

/** As it is; its end, for what was cut at the front; URL-encoded, hexadecimal, and base64 wherever it starts in what was encoded. */
const known = new Map<string, readonly string[]>();
function formsOf(secret: string): readonly string[] {
  const forms = known.get(secret) ?? [
    secret,
    secret.slice(-24),
    encodeURIComponent(secret),
    Buffer.from(secret).toString('hex'),
    ...[0, 1, 2].flatMap(offset => {
      const shifted = Buffer.concat([Buffer.alloc(offset), Buffer.from(secret)]);
      const whole = shifted.subarray(0, shifted.length - (shifted.length % 3));
      const skip = Math.ceil((offset * 4) / 3);
      return [whole.toString('base64').slice(skip), whole.toString('base64url').slice(skip)];
    }),
  ];
  known.set(secret, forms);
  return forms;
}

/** Everything in the database as text: bytes in hexadecimal, as both ways of dumping write them. */
export async function dump({
  db,
  databaseUrl,
}: Pick<IdentityUnderTest, 'db' | 'databaseUrl'>): Promise<string> {
  if (databaseUrl !== undefined) {
    const { stdout } = await promisify(execFile)(
      path.join(findPostgres() ?? '', 'pg_dump'),
      ['--inserts', databaseUrl],
      { maxBuffer: 2 ** 30 },
    );
    return stdout;
  }
  return (await Promise.all((await tablesOf(db)).map(table => everyRow(db, table)))).flat().join('\n');
}

const tablesOf = async (db: Database) =>
  rows<{ schema: string; name: string }>(
    db,
    sql`select table_schema as schema, table_name as name from information_schema.tables
        where table_type = 'BASE TABLE' and table_schema not in ('pg_catalog', 'information_schema')`,
  );

async function everyRow(db: Database, { schema, name }: { schema: string; name: string }): Promise<string[]> {
  const table = sql`${sql.identifier(schema)}.${sql.identifier(name)}`;
  const found = await rows<{ row: string }>(db, sql`select t::text as row from ${table} t`);
  return found.map(({ row }) => `${name} ${row}`);
}

/** Hears every answer of Switchboard to this process from now on, headers too, until `vi.unstubAllGlobals()`. */
export function listenIn(sb: Pick<IdentityUnderTest, 'url'>, canaries: Canaries): void {
  const { fetch: real } = globalThis;
  vi.stubGlobal('fetch', async (url: string, init?: RequestInit) => {
    const response = await real(url, init);
    if (!url.startsWith(`${sb.url}/`)) return response;
    const headers = [...response.headers].map(([name, value]) => `${name}: ${value}`).join('\n');
    canaries.hear({
      method: init?.method ?? 'GET',
      path: new URL(url).pathname,
      status: response.status,
      text: `${headers}\n\n${await response.clone().text()}`,
    });
    return response;
  });
}
