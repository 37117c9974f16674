import { catalogueCommands } from './catalogue-commands.ts';
import type { Command, DatabaseCommand } from './command.ts';
import { consoleCommands } from './console-commands.ts';
import { databaseCommands } from './database-commands.ts';
import { keyCommands, tenantCommands } from './access-commands.ts';
import { connectionCommands } from './connection-commands.ts';
import { toolCommands } from './tool-commands.ts';
import { webhookCommands } from './webhook-commands.ts';

type Commands = Readonly<Record<string, Command | DatabaseCommand>>;

/** All commands by subject, in the order in which `--help` and docs/cli.md show them. */
export const COMMAND_GROUPS: Readonly<Record<string, Commands>> = {
  Keys: keyCommands,
  Connections: connectionCommands,
  Tenants: tenantCommands,
  Webhooks: webhookCommands,
  Catalogue: catalogueCommands,
  'Search and call': toolCommands,
  Console: consoleCommands,
  Database: databaseCommands,
};

export const commands: Commands = Object.fromEntries(Object.values(COMMAND_GROUPS).flatMap(Object.entries));
