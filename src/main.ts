import { main } from './cli/main.ts';
import { processIo } from './cli/terminal.ts';

process.exitCode = await main(process.argv.slice(2), processIo);
