import { whyFailed } from '../../platform/database/database.ts';
import { Listening } from '../../platform/database/listen.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Catalogue } from './catalogue.ts';

/** Notifications may be lost with their connection: this is how long a change may then stay unseen. */
const LOOK_EVERY_MS = 5_000;

interface FollowingOptions {
  readonly catalogue: Pick<Catalogue, 'catchUp'>;
  readonly log: Log;
  readonly lookEveryMs: number;
}

/** Has the catalogue catch up with other processes' changes: when told of one, and now and then. One at a time. */
export class Following {
  readonly #catalogue: Pick<Catalogue, 'catchUp'>;
  readonly #log: Log;
  readonly #looking: NodeJS.Timeout;
  #isDue = false;
  #isClosed = false;
  #hasFailed = false;
  #running: Promise<void> | undefined;

  constructor({ catalogue, log, lookEveryMs }: FollowingOptions) {
    this.#catalogue = catalogue;
    this.#log = log;
    this.#looking = setInterval(() => this.look(), lookEveryMs).unref();
  }

  /** Never throws and never waits. */
  look(): void {
    this.#isDue = true;
    if (this.#isClosed) return;
    this.#running ??= this.#untilCurrent().finally(() => (this.#running = undefined));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#looking);
    await this.#running;
  }

  async #untilCurrent(): Promise<void> {
    while (this.#isDue && !this.#isClosed) {
      this.#isDue = false;
      try {
        await this.#catalogue.catchUp();
        this.#hasFailed = false;
      } catch (error) {
        if (!this.#hasFailed && !this.#isClosed) this.#log.warn(whyFailed(error), NOT_TAKEN_OVER);
        this.#hasFailed = true;
      }
    }
  }
}

/** Named in the triggers on the tables `servers` and `server_health` (`drizzle/`). */
const CHANNEL = 'switchboard_catalogue';

/** Lets the catalogue of this process follow what others on the same Postgres do to it, until it is disposed of. */
export function followCatalogue(
  catalogue: Pick<Catalogue, 'catchUp'>,
  url: string,
  log: Log,
  lookEveryMs = LOOK_EVERY_MS,
): AsyncDisposable {
  const following = new Following({ catalogue, log, lookEveryMs });
  const listening = new Listening({ url, channel: CHANNEL, log, onNotice: () => following.look() });
  return {
    async [Symbol.asyncDispose]() {
      await listening[Symbol.asyncDispose]();
      await following.close();
    },
  };
}

const NOT_TAKEN_OVER =
  'changes of the catalogue by other processes not taken over: it is tried again every few seconds';
