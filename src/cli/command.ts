import type { Config } from '../config/index.ts';
import type { AdminClient } from './admin-client.ts';
import type { Io } from './terminal.ts';

/** The command line cannot be understood: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Invocation {
  readonly admin: AdminClient;
  readonly io: Io;
  readonly args: readonly string[];
  /** An option that may be repeated has a list. */
  readonly options: Readonly<Record<string, string | boolean | readonly string[] | undefined>>;
}

interface Option {
  readonly type: 'string' | 'boolean';
  readonly multiple?: true;
  /** Markdown, as in `Described.help`. */
  readonly help: string;
}

interface Described {
  /** Positional arguments by name. A trailing `?` marks one that may be left out, `*` any number of them. */
  readonly args: readonly string[];
  readonly options?: Readonly<Record<string, Option>>;
  /** Markdown for docs/cli.md, with links relative to docs/; `--help` shows it without markup. */
  readonly help: string;
}

/** A command that a server carries out: the running one, or one started for it without its public API. */
export interface Command extends Described {
  /** Set on commands that change data. All others fail where there is no database, and create none. */
  readonly changes?: true;
  /** Returns the answer for `--json`, its text for people, and whether part of the work failed. */
  run(invocation: Invocation): Promise<{ json: unknown; text: string; failed?: boolean }>;
}

/** A command that works on the database itself, without any server. */
export interface DatabaseCommand extends Described {
  readonly on: 'database';
  run(
    invocation: Omit<Invocation, 'admin'> & { readonly config: Config },
  ): Promise<{ json: unknown; text: string }>;
}

/** Returns the parts of a list written with commas; an option that may be repeated gives several such lists. */
export function listOf(value: Invocation['options'][string]): string[] | undefined {
  if (value === undefined || typeof value === 'boolean') return undefined;
  return [value]
    .flat()
    .flatMap(text => text.split(','))
    .map(part => part.trim())
    .filter(part => part !== '');
}
