import { main } from '../../src/cli/main.ts';
import { readConfig } from '../../src/config/index.ts';
import { serve } from '../../src/cli/serve/serve.ts';
import { processIo } from '../../src/cli/terminal.ts';

/** The program, with a primary process that reports a hanging worker after half a second and kills it after three. */
const args = process.argv.slice(2);
process.exitCode =
  args.length > 0
    ? await main(args, processIo)
    : await serve(readConfig(), processIo, { askEveryMs: 250, stopMs: 3_000 });
