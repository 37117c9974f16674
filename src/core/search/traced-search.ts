import { traced } from '../../platform/telemetry/tracing.ts';
import type { Search } from './search.ts';

/** Each search as a piece of work in the trace of its request; of the query itself nothing is said. */
export const tracedSearch = (search: Search): Search => ({
  ...search,
  search: (caller, input) =>
    traced('search', async span => {
      const answer = await search.search(caller, input);
      span?.set({
        'switchboard.search.cache_hit': answer.metadata.cache_hit,
        'switchboard.search.servers': answer.servers.length,
        'switchboard.search.query_log_id': answer.metadata.query_log_id,
      });
      return answer;
    }),
});
