import type { SwitchboardError } from '../../../errors.ts';
import { brokeProtocol } from './failures.ts';

/** Answers below 200 before the one that counts; each has headers of its own. */
const MAX_INTERIM = 200;

/** Counts them for one request: a server could send them without end, and none is an answer. */
export class InterimAnswers {
  #count = 0;

  /** What to fail with, once there are too many. */
  took(): SwitchboardError | undefined {
    return ++this.#count > MAX_INTERIM ? brokeProtocol('sent too many interim answers') : undefined;
  }
}
