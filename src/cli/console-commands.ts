import { CommandFailed } from './admin-client.ts';
import { openInBrowser } from './browser.ts';
import type { Command } from './command.ts';
import { plural } from './terminal.ts';

const open: Command = {
  args: [],
  options: {
    'read-only': { type: 'boolean', help: 'Signs in to look only: nothing can be changed.' },
    end: { type: 'boolean', help: 'Ends all sessions of the console and unused links instead.' },
  },
  help: "Opens the [operator's console](console.md) in a browser. The link works once, within five minutes.",
  changes: 'existing',
  async run({ admin, io, options }) {
    if (options['end'] === true) {
      const json = (await admin.request('POST', '/console/end')) as { ended: number };
      return { json, text: `Ended ${json.ended} ${plural(json.ended, 'session')} of the console.` };
    }
    if (admin.alone !== undefined)
      throw new CommandFailed(
        'The console needs the running server. Start it with npm start, then repeat the command.',
      );
    const json = { read_only: options['read-only'] === true };
    const made = (await admin.request('POST', '/console/link', { json })) as {
      url: string;
      expires_at: string;
    };
    if (io.status) openInBrowser(made.url);
    return { json: made, text: `${made.url}\nThe link works once, until ${made.expires_at}.` };
  },
};

export const consoleCommands = { console: open };
