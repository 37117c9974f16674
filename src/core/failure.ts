import { SwitchboardError, toSwitchboardError } from '../errors.ts';
import { isDatabaseUnavailable } from '../platform/database/database.ts';

/** Converts any thrown value to a SwitchboardError. An unreachable database is `unavailable`, not `internal`. */
export function fromThrown(thrown: unknown): SwitchboardError {
  const error = toSwitchboardError(thrown);
  if (error.code !== 'internal' || !isDatabaseUnavailable(error.cause)) return error;
  return new SwitchboardError(
    'unavailable',
    'The database cannot be reached. Nothing was changed; try again soon.',
    { retryAfterSec: 2, cause: error.cause },
  );
}
