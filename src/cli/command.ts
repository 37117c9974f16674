import type { Config } from '../config/index.ts';
import type { AdminClient } from './admin-client.ts';
import type { Io } from './terminal.ts';

/** The command line is invalid: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Invocation {
  readonly admin: AdminClient;
  readonly io: Io;
  readonly args: readonly string[];
  /** A repeatable option has a list of values. */
  readonly options: Readonly<Record<string, string | boolean | readonly string[] | undefined>>;
}

interface Option {
  readonly type: 'string' | 'boolean';
  readonly multiple?: true;
  /** Markdown, as in `Described.help`. */
  readonly help: string;
}

interface Described {
  /** Names of positional arguments. A trailing `?` marks an optional one, `*` any number, `+` at least one. */
  readonly args: readonly string[];
  readonly options?: Readonly<Record<string, Option>>;
  /** Markdown for docs/cli.md, with links relative to docs/; `--help` strips the markup. */
  readonly help: string;
}

/** A command carried out by a server: the running one, or one started for it without the public API. */
export interface Command extends Described {
  /** Set on commands that change data. `existing`: like the commands that only read, they fail if there is no database. */
  readonly changes?: true | 'existing';
  /** Returns the result for `--json`, its text for people, and whether part of the work failed. */
  run(invocation: Invocation): Promise<{ json: unknown; text: string; failed?: boolean }>;
}

/** A command that works on the database directly, without a server. */
export interface DatabaseCommand extends Described {
  readonly on: 'database';
  run(
    invocation: Omit<Invocation, 'admin'> & { readonly config: Config },
  ): Promise<{ json: unknown; text: string }>;
}

export const DEFAULT_TENANT = 'local';

/** The option `--tenant`. */
export const tenant = { type: 'string', help: 'Tenant. Default: `local`.' } as const;

/** Returns the tenant that a command is for. */
export const tenantOf = ({ tenant: id }: Invocation['options']): string => String(id ?? DEFAULT_TENANT);

/** Splits comma-separated values; a repeatable option may have several such lists. */
export function listOf(value: Invocation['options'][string]): string[] | undefined {
  if (value === undefined || typeof value === 'boolean') return undefined;
  return [value]
    .flat()
    .flatMap(text => text.split(','))
    .map(part => part.trim())
    .filter(part => part !== '');
}
