import { UsageError, type Command } from './command.ts';
import { workProgress } from './progress.ts';

interface SyncReport {
  registry: string;
  mode: 'full' | 'incremental';
  received: number;
  synced: number;
  deactivated: number;
  left: number;
  skipped: { deleted: number; no_remote: number; needs_configuration: number };
  problems: { name?: string; reason: string }[];
  bad: number;
  refused?: string;
}

/** Problems shown on a terminal; `--json` has more. */
const MAX_SHOWN = 10;

export const catalogueSync: Command = {
  args: ['URL'],
  options: {
    full: { type: 'boolean', help: 'ask for everything, not only for what has changed since the last sync' },
    force: { type: 'boolean', help: 'also where many servers would become inactive (implies --full)' },
  },
  help: 'bring in what a registry (API v0.1) lists, such as another Switchboard; done once it is searchable',
  changes: true,
  async run({ admin, io, args: [url = ''], options }) {
    if (!/^https?:\/\//.test(url)) throw new UsageError(`${url} must be an http(s) URL`);
    const force = options['force'] === true;
    const json = { url, full: options['full'] === true, force };
    io.complain('Syncing; new texts are embedded, which takes a while for thousands of servers.');
    const progress = workProgress(io);
    const heard = {
      onProgress: progress.show,
      onListed: progress.listed,
      onNotice: (notice: string) => io.complain(notice),
    };
    const work = admin.work('/catalogue/sync', { json }, heard);
    const report = (await work.finally(progress.end)) as SyncReport;
    for (const { name, reason } of report.problems.slice(0, MAX_SHOWN))
      io.complain(`${name ?? 'an entry'}: ${reason}`);
    return { json: report, text: textOf(report), failed: report.refused !== undefined };
  },
};

function textOf(report: SyncReport): string {
  const { refused, mode, received, synced, deactivated, left, skipped, bad } = report;
  if (refused !== undefined) return `Refused: ${refused}`;
  const parts: [number, string][] = [
    [deactivated, 'made inactive'],
    [
      left,
      'left alone (here already, under the operator, the shipped catalogue or another registry, or inactive for not answering)',
    ],
    [skipped.no_remote, 'without a remote address'],
    [skipped.needs_configuration, 'whose address has variables to be filled in'],
    [skipped.deleted, 'deleted there'],
    [bad, 'bad entries skipped'],
  ];
  const more = parts.flatMap(([count, what]) => (count === 0 ? [] : `${count} ${what}`));
  return `${synced} servers synced (${mode}, ${received} entries listed)${more.map(part => `, ${part}`).join('')}.`;
}
