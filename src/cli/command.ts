import type { Config } from '../config/index.ts';
import type { AdminClient } from './admin-client.ts';
import type { Io } from './io.ts';

/** Wrong words on the command line: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Invocation {
  readonly admin: AdminClient;
  readonly io: Io;
  readonly args: readonly string[];
  /** A list for an option that may be given several times. */
  readonly options: Readonly<Record<string, string | boolean | readonly string[] | undefined>>;
}

interface Option {
  readonly type: 'string' | 'boolean';
  readonly multiple?: true;
  readonly help: string;
}

interface Described {
  /** Positional arguments by name; a trailing `?` marks one that may be absent, `*` any number of them. */
  readonly args: readonly string[];
  readonly options?: Readonly<Record<string, Option>>;
  readonly help: string;
}

/** A command that a server carries out: the running one, or else one without its public faces. */
export interface Command extends Described {
  /** It changes what a server works with, so that it must be the data of the right one. Others make no database where there is none. */
  readonly changes?: true;
  /** Resolves with the answer for `--json`, its text for people, and whether all of it went well. */
  run(invocation: Invocation): Promise<{ json: unknown; text: string; failed?: boolean }>;
}

/** A command that works on the database itself: it starts nothing else, and asks no server. */
export interface DatabaseCommand extends Described {
  readonly on: 'database';
  run(
    invocation: Omit<Invocation, 'admin'> & { readonly config: Config },
  ): Promise<{ json: unknown; text: string }>;
}

/** The parts of a list written with commas; an option that may be repeated gives several such lists. */
export function listOf(value: Invocation['options'][string]): string[] | undefined {
  if (value === undefined || typeof value === 'boolean') return undefined;
  return [value]
    .flat()
    .flatMap(text => text.split(','))
    .map(part => part.trim())
    .filter(part => part !== '');
}
