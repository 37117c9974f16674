import { SwitchboardError, toSwitchboardError } from '../../errors.ts';
import { monotonicMs, type Cancellation } from '../../platform/time.ts';
import { isTemplate } from '../catalogue/address-template.ts';
import type { ServerHead } from '../catalogue/entry.ts';
import type { Credential } from '../identity/connections/holdings.ts';
import type { ProxyLimits } from './limits.ts';
import { listAllTools, ToolDefinitions, type ListedTool } from './tools.ts';
import { UpstreamClient } from './upstream/client.ts';
import { Deadline } from './upstream/deadline.ts';
import type { UpstreamParts } from './upstream/era.ts';
import { HttpFailure } from './upstream/failures.ts';

const MAX_INSPECTION_MS = 15_000;
const MAX_ENDPOINT_MS = 5_000;
const MAX_SIDE_MS = 2_000;
/** The owner of an inspection's session, which ends with the inspection. */
const INSPECTOR = { tenantId: 'health' };

/** The result of inspecting a server. */
export interface Inspection {
  /** Milliseconds from the first request to the response or the failure. */
  readonly latencyMs: number;
  /** The usable tools that the server lists; absent if the inspection failed. */
  readonly tools?: readonly ListedTool[];
  /** Why the inspection failed. */
  readonly error?: SwitchboardError;
  /** The HTTP status, if that is why the inspection failed. */
  readonly httpStatus?: number;
  /** True once the handshake, or `server/discover`, succeeded. */
  readonly hasEntered: boolean;
}

/**
 * Lists a server's tools like a call, within 15 s and without a user. It negotiates from scratch each time and
 * leaves no session behind. Slots, breakers and usage counts are not affected.
 * @throws the signal's reason once it aborts, and nothing else
 */
export async function inspect(
  { http, clock, log: parentLog, limits: callLimits }: UpstreamParts,
  server: ServerHead,
  signal: Cancellation,
  credential?: Credential,
): Promise<Inspection> {
  if (!credential?.url && isTemplate(server.remoteUrl))
    return { latencyMs: 0, hasEntered: false, error: needsValues(server) };
  const limits: ProxyLimits = {
    ...callLimits,
    totalTimeoutMs: Math.min(callLimits.totalTimeoutMs, MAX_INSPECTION_MS),
    endpointTimeoutMs: Math.min(callLimits.endpointTimeoutMs, MAX_ENDPOINT_MS),
    sideTimeoutMs: Math.min(callLimits.sideTimeoutMs, MAX_SIDE_MS),
    toolRefreshIntervalMs: Infinity,
  };
  // Details that calls log once per server would be repeated by every inspection.
  const log = parentLog.child({}, { level: 'warn' });
  const definitions = new ToolDefinitions({ clock, log, limits });
  const upstream = new UpstreamClient({ http, limits, clock, log }, definitions);
  const startedAtMs = monotonicMs(clock);
  const ended = () => ({
    latencyMs: Math.round(monotonicMs(clock) - startedAtMs),
    hasEntered: upstream.hasEntered(server.remoteUrl),
  });
  try {
    using deadline = new Deadline(limits.totalTimeoutMs, signal);
    const call = { caller: INSPECTOR, server, credential, method: 'tools/list' };
    const listing = await listAllTools(params => upstream.request({ ...call, params }, deadline), limits);
    const view = { server, caller: INSPECTOR, connectionKey: credential?.connectionKey };
    return { ...ended(), tools: definitions.keep(view, listing) };
  } catch (thrown) {
    signal.throwIfAborted();
    if (!(thrown instanceof SwitchboardError))
      log.error({ err: thrown, serverId: server.id }, 'server inspection failed');
    const status = thrown instanceof HttpFailure ? { httpStatus: thrown.httpStatus } : {};
    return { ...ended(), error: toSwitchboardError(thrown), ...status };
  } finally {
    await upstream.close();
  }
}

const needsValues = ({ id }: ServerHead) =>
  new SwitchboardError(
    'connection_required',
    `The server ${id} has no address until its variables are filled.`,
  );
