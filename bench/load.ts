import { execFile as execFileWithCallback } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { temporaryFolder } from '../test/support/program.ts';

const TICKS_PER_SECOND = 100;
/** A call without an answer for so long is a failed call. */
const ANSWER_SECONDS = 10;
const execFile = promisify(execFileWithCallback);

/** A POST request that is sent again and again. */
export interface Load {
  readonly name: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Its `"id":1` becomes a new number in each request. */
  readonly body: string;
  /** The process that answers: its processor time, and that of its descendants, is read. */
  readonly pid: number;
  /** An answer with headers is at least this long; a smaller mean fails the load. */
  readonly answerBytes?: number;
}

export interface Turn {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Microseconds of processor time a request. */
  readonly cpuUs: number;
  /** Resident memory after the load. */
  readonly rssMib: number;
  /** Cores that work outside this run took at the same time. */
  readonly othersCores: number;
}

/** The last line of `load.lua`. Times are in microseconds. */
interface Seen {
  readonly requests: number;
  readonly us: number;
  readonly failed: number;
  readonly p50: number;
  readonly p99: number;
}

export const MCP_HEADERS = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  'mcp-protocol-version': '2025-06-18',
};

/** Returns the process and its descendants. One that has ended meanwhile has none. */
export function processTree(pid: number): number[] {
  try {
    const threads = readdirSync(`/proc/${pid}/task`);
    const children = threads.flatMap(thread =>
      readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
    );
    return [pid, ...children.flatMap(processTree)];
  } catch {
    return [pid];
  }
}

/** Sums a figure over the process and its descendants, without those that end meanwhile. */
function sumOverTree(pid: number, figureOf: (pid: number) => number): number {
  let sum = 0;
  for (const member of processTree(pid)) {
    try {
      sum += figureOf(member);
    } catch {
      // It has ended.
    }
  }
  return sum;
}

const sumOfTicks = (fields: readonly string[]) =>
  fields.reduce((sum, field) => sum + Number(field), 0) / TICKS_PER_SECOND;

/** Returns the seconds of processor time that the process and its descendants have used, with those that have ended. */
export function cpuSeconds(pid: number): number {
  return sumOverTree(pid, member => {
    const stat = readFileSync(`/proc/${member}/stat`, 'utf8');
    return sumOfTicks(
      stat
        .slice(stat.lastIndexOf(') ') + 2)
        .split(' ')
        .slice(11, 15),
    );
  });
}

/** Returns the seconds of processor time that processes outside this run have used, with what other machines took. */
function othersSeconds(): number {
  const fields = readFileSync('/proc/stat', 'utf8').split('\n')[0]?.split(/ +/) ?? [];
  // Without the two kinds of idle time; a process's own time includes the interrupts that it was charged with.
  return sumOfTicks([...fields.slice(1, 4), ...fields.slice(6, 9)]) - cpuSeconds(process.pid);
}

/** Waits until work outside this run leaves the machine alone, for so many seconds at most. */
export async function untilQuiet(cores: number, seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second += 0.5) {
    const before = othersSeconds();
    await delay(500);
    if ((othersSeconds() - before) * 2 <= cores) return;
  }
}

/** Returns the resident memory of the process and its descendants; pages that they share count for each. */
function residentMib(pid: number): number {
  return sumOverTree(pid, member => {
    const status = readFileSync(`/proc/${member}/status`, 'utf8');
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) / 1024;
  });
}

/** Waits until the process is idle, for five seconds at most: wrk leaves calls behind, which would burden whoever is next. */
async function untilIdle(pid: number): Promise<void> {
  for (let waited = 0; waited < 50; waited++) {
    const before = cpuSeconds(pid);
    await delay(100);
    if (cpuSeconds(pid) - before <= 1 / TICKS_PER_SECOND) return;
  }
}

/** Returns the bytes that wrk says it has read. */
function bytesRead(output: string): number {
  const [, number, unit = ''] = / ([\d.]+)([KMGT]?)B read/.exec(output) ?? [];
  return Number(number) * 1024 ** ['', 'K', 'M', 'G', 'T'].indexOf(unit);
}

/**
 * Sends the request over so many connections with wrk, each as soon as its last answer is whole, for so many seconds.
 * @throws if a request failed or the answers are too short on average
 */
export async function load(way: Load, connections: number, seconds: number): Promise<Turn> {
  await using folder = temporaryFolder();
  const files = { WRK_HEADERS: path.join(folder.path, 'headers'), WRK_BODY: path.join(folder.path, 'body') };
  const headers = Object.entries(way.headers).map(([name, value]) => `${name}: ${value}`);
  await Promise.all([writeFile(files.WRK_HEADERS, headers.join('\n')), writeFile(files.WRK_BODY, way.body)]);
  const cpuBefore = cpuSeconds(way.pid);
  const othersBefore = othersSeconds();
  const times = ['-t1', `-c${connections}`, `-d${seconds}s`, '--timeout', `${ANSWER_SECONDS}s`];
  const { stdout } = await execFile('wrk', [...times, '-s', 'bench/proxy/load.lua', way.url], {
    env: { ...process.env, ...files },
    timeout: (seconds + 2 * ANSWER_SECONDS) * 1000,
  });
  const cpuUs = (cpuSeconds(way.pid) - cpuBefore) * 1e6;
  const others = othersSeconds() - othersBefore;
  const rssMib = residentMib(way.pid);
  await untilIdle(way.pid);
  const seen = JSON.parse(stdout.slice(stdout.lastIndexOf('{'))) as Seen;
  if (seen.requests === 0) throw new Error(`${way.name}: no answer within ${seconds} s`);
  if (seen.failed > 0) throw new Error(`${way.name}: ${seen.failed} of ${seen.requests} requests failed`);
  const size = bytesRead(stdout) / seen.requests;
  if (!(size >= (way.answerBytes ?? 0))) throw new Error(`${way.name}: answers of ${size.toFixed(0)} bytes`);
  return {
    perSecond: seen.requests / (seen.us / 1e6),
    p50Ms: seen.p50 / 1000,
    p99Ms: seen.p99 / 1000,
    cpuUs: cpuUs / seen.requests,
    rssMib,
    othersCores: others / (seen.us / 1e6),
  };
}

/** Posts JSON once. Rejects after ten seconds without the whole answer. */
export async function post(
  url: string,
  headers: Readonly<Record<string, string>>,
  body: string,
): Promise<{ readonly headers: Headers; readonly status: number; readonly text: string }> {
  const signal = AbortSignal.timeout(ANSWER_SECONDS * 1000);
  const response = await fetch(url, { method: 'POST', headers, body, signal });
  return { headers: response.headers, status: response.status, text: await response.text() };
}

/**
 * Begins a session (2025-06-18) with whoever answers at the URL, as a client does.
 * Returns the headers of later requests, with the session's id unless the server has no sessions.
 * @throws if the server does not begin one
 */
export async function openSession(
  url: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<Readonly<Record<string, string>>> {
  const clientInfo = { name: 'bench', version: '1' };
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo };
  const all = { ...headers, ...MCP_HEADERS };
  const initialize = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params });
  const begun = await post(url, all, initialize);
  if (begun.status !== 200) throw new Error(`${url} began no session: HTTP ${begun.status} ${begun.text}`);
  const id = begun.headers.get('mcp-session-id');
  const own = id === null ? all : { ...all, 'mcp-session-id': id };
  const confirmed = await post(url, own, '{"jsonrpc":"2.0","method":"notifications/initialized"}');
  if (confirmed.status >= 300) throw new Error(`${url} took no notification: HTTP ${confirmed.status}`);
  return own;
}
