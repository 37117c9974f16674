import { main } from '../../src/cli/main.ts';
import { readConfig } from '../../src/config/index.ts';
import { serve } from '../../src/cli/serve/serve.ts';
import { processIo } from '../../src/cli/terminal.ts';

/**
 * The program, with a primary process that reports a hanging worker after two seconds and kills it after twelve. A busy machine
 * takes more than three seconds to start Node, and until then a worker does not answer.
 */
const args = process.argv.slice(2);
process.exitCode =
  args.length > 0
    ? await main(args, processIo)
    : await serve(readConfig(), processIo, { askEveryMs: 1_000, stopMs: 10_000 });
