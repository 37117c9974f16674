import type { Command } from './command.ts';
import { workProgress } from './progress.ts';

interface ProbeReport {
  visited: number;
  ok: number;
  needs_sign_in: number;
  not_mcp: number;
  unreachable: number;
  no_verdict: number;
  deactivated: number;
  reactivated: number;
  failing: { id: string; status: string; reason: string }[];
  doubted?: string;
}

/** Servers shown on a terminal; `--json` has more. */
const MAX_SHOWN = 20;

export const catalogueProbe: Command = {
  args: ['ID*'],
  help: 'visit the servers of the catalogue, or those named, and note how they are',
  changes: true,
  async run({ admin, io, args }) {
    const progress = workProgress(io, { what: 'servers visited' });
    const heard = { onProgress: progress.show, onNotice: (notice: string) => io.complain(notice) };
    const json = args.length === 0 ? {} : { ids: args };
    const work = admin.work('/catalogue/probe', { json }, heard);
    const report = (await work.finally(progress.end)) as ProbeReport;
    return { json: report, text: textOf(report), failed: report.doubted !== undefined };
  },
};

function textOf(report: ProbeReport): string {
  const { visited, failing, doubted } = report;
  const parts: [number, string][] = [
    [report.ok, 'ok'],
    [report.needs_sign_in, 'want a sign-in'],
    [report.not_mcp, 'no MCP'],
    [report.unreachable, 'unreachable'],
    [report.no_verdict, 'say nothing of their health (such as HTTP 429)'],
    [report.deactivated, 'made inactive'],
    [report.reactivated, 'active again'],
  ];
  const counts = parts.flatMap(([count, what]) => (count === 0 ? [] : `${count} ${what}`));
  const more = failing.length - MAX_SHOWN;
  return [
    `${visited} ${visited === 1 ? 'server' : 'servers'} visited: ${counts.join(', ') || 'none'}.`,
    ...failing.slice(0, MAX_SHOWN).map(({ id, status, reason }) => `  ${id}: ${status}. ${reason}`),
    ...(more > 0 ? [`  and ${more} more: --json names them.`] : []),
    ...(doubted === undefined ? [] : [`Doubted: ${doubted}.`]),
  ].join('\n');
}
