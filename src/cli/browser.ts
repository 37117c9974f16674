import { spawn } from 'node:child_process';

/** Opens the person's browser, if there is one; the link is on the terminal in any case. */
export function openInBrowser(url: string): void {
  const openers: Partial<Record<NodeJS.Platform, string>> = { darwin: 'open', win32: 'explorer' };
  const child = spawn(openers[process.platform] ?? 'xdg-open', [url], { stdio: 'ignore', detached: true });
  child.once('error', () => {});
  child.unref();
}
