import { newId } from '../../platform/ids.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { errorOf, problemOf } from '../http/problem.ts';

/** What a command is told of whatever its handler threw; a fault of our own is logged. */
export function refusalOf(thrown: unknown, log: Log): { status: number; problem: Record<string, unknown> } {
  const requestId = newId('req');
  const error = errorOf(thrown);
  if (error.code === 'internal') log.error({ err: thrown, requestId }, 'operator command failed');
  return { status: error.status, problem: problemOf(error, requestId) };
}
