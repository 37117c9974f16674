import { readFile } from 'node:fs/promises';
import { KILLED, type Fault } from './faults.ts';
import type { Installation } from './installation.ts';
import type { Operation } from './load.ts';

/** Counts are written once a second, so that a kill loses that much (docs/operations/postgres.md, "Several processes"), and a write under way. */
const WRITTEN_BEHIND_MS = 1_250;

/** Of one kind of count: what callers were answered, what is in the database. */
interface Account {
  readonly answered: number;
  readonly counted: number;
  /** Answered by the killed replica just before its end: so many may be missing. */
  readonly may_be_missing: number;
}

export interface Accounts {
  /** By the ids in the answers. */
  readonly searches_in_query_log: Account;
  readonly calls_in_server_usage: Account;
  readonly searches_of_the_key: Account;
  readonly calls_of_the_key: Account;
  /** Calls that the upstream which never fails has received. */
  readonly calls_at_steady_upstream: Omit<Account, 'may_be_missing'>;
  /** Events of the audit log by kind. */
  readonly audit: Readonly<Record<string, number>>;
}

/** What was answered, against what is in the database. To be asked when all replicas have stopped: then all is written. */
export async function settle(
  installation: Installation,
  operations: readonly Operation[],
  faults: readonly Fault[],
): Promise<Accounts> {
  const answered = operations.filter(({ failure }) => failure === undefined);
  const searches = answered.filter(({ kind }) => kind === 'search');
  const calls = answered.filter(({ kind }) => kind === 'call');
  const killedMs = faults.find(({ name }) => name === 'replica killed')?.startMs ?? -Infinity;
  const may_be_missing = (ofKind: readonly Operation[]) =>
    ofKind.filter(
      ({ life, endedMs }) =>
        life?.name === KILLED && endedMs <= killedMs && endedMs > killedMs - WRITTEN_BEHIND_MS,
    ).length;
  const account = (ofKind: readonly Operation[], counted: number): Account => ({
    answered: ofKind.length,
    counted,
    may_be_missing: may_be_missing(ofKind),
  });

  const logged = new Set((await installation.sql('select id from query_log')).map(({ id }) => id));
  const [sums] = (await installation.sql(
    `select (select sum(successes)::int from server_usage) as usage,
            (select sum(calls)::int from key_use) as calls, (select sum(searches)::int from key_use) as searches`,
  )) as [Record<'usage' | 'calls' | 'searches', number>];
  const audit = await installation.sql(
    'select event, count(*)::int as events from audit_log group by event order by event',
  );
  const received = (await installation.steady.state()).calls;
  return {
    searches_in_query_log: account(
      searches,
      searches.filter(({ queryLogId }) => logged.has(queryLogId)).length,
    ),
    calls_in_server_usage: account(calls, sums.usage),
    searches_of_the_key: account(searches, sums.searches),
    calls_of_the_key: account(calls, sums.calls),
    calls_at_steady_upstream: {
      answered: calls.filter(({ server = '' }) => !server.startsWith('failing-')).length,
      counted: received,
    },
    audit: Object.fromEntries(audit.map(({ event, events }) => [String(event), Number(events)])),
  };
}

/** Whether more is missing than a kill explains. */
export const isMoreMissing = (accounts: Accounts): boolean =>
  [
    accounts.searches_in_query_log,
    accounts.calls_in_server_usage,
    accounts.searches_of_the_key,
    accounts.calls_of_the_key,
  ].some(({ answered, counted, may_be_missing }) => answered - counted > may_be_missing);

/** Lines of the replicas' logs by level and message, and how often each was written. */
export async function readLogs({ replicas }: Installation): Promise<Readonly<Record<string, number>>> {
  const counts: Record<string, number> = {};
  for (const { logFile } of replicas.flatMap(({ lives }) => lives)) {
    for (const line of (await readFile(logFile, 'utf8')).split('\n').filter(text => text !== '')) {
      const key = messageOf(line);
      counts[key] = (counts[key] ?? 0) + 1;
    }
  }
  return counts;
}

/** Of an error's message. */
const SHOWN_CHARS = 160;
/** Of pino. */
const ERROR_LEVEL = 50;

interface Line {
  readonly level: number;
  readonly msg: string;
  readonly err?: { readonly message: string };
}

function messageOf(line: string): string {
  if (!line.startsWith('{')) return `not JSON: ${line.slice(0, 200)}`;
  const { level, msg, err } = JSON.parse(line) as Line;
  if (level < ERROR_LEVEL) return `warning: ${msg}`;
  return `error: ${msg}${err === undefined ? '' : ` (${err.message.slice(0, SHOWN_CHARS)})`}`;
}
