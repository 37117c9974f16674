import { AsyncLocalStorage } from 'node:async_hooks';

/** Attributes of a span: short values from closed lists, numbers and ids, and nothing that a caller wrote. */
export type Attributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** W3C Trace Context as headers or members of a message: `traceparent`, `tracestate`. */
export type TraceContext = Readonly<Record<string, string>>;

export interface SpanOptions {
  /** Default `internal`. */
  readonly kind?: 'server' | 'client';
  readonly attributes?: Attributes;
  /** A carrier whose valid trace context becomes the parent; the span that makes this one is linked then. */
  readonly from?: unknown;
}

/** A piece of work in a trace. One that is not sampled has ids and context too, and is not exported. */
export interface Span {
  /** For log lines, in the names of OpenTelemetry's log formats. */
  readonly logFields: { readonly trace_id: string; readonly span_id: string };
  /** Goes along with a call, so that the other side goes on with the trace. */
  readonly context: TraceContext;
  child(name: string, options?: SpanOptions): Span;
  rename(name: string): void;
  set(attributes: Attributes): void;
  /** @param errorType `error.type`: an error's code, or a status */
  failed(errorType: string): void;
  end(): void;
}

export interface Tracing {
  /** The span of a request that came in. @param from its headers: a `traceparent` that holds makes the caller's span its parent. */
  serve(name: string, from: unknown): Span;
  /** Exports what has ended, in bounded time. Never rejects. */
  close(): Promise<void>;
}

export interface TracingSettings {
  /** Which traces are exported that no caller has decided about (`parentBased`), or all. */
  readonly sampler: { readonly parentBased: boolean; readonly ratio: number };
  /** Absent: the SDK's own limits, which are the specification's. */
  readonly batch: {
    readonly scheduledDelayMillis?: number | undefined;
    readonly exportTimeoutMillis?: number | undefined;
    readonly maxQueueSize?: number | undefined;
    readonly maxExportBatchSize?: number | undefined;
  };
  /** In PEM form, for a collector behind TLS. */
  readonly tls: {
    readonly ca?: string | undefined;
    readonly cert?: string | undefined;
    readonly key?: string | undefined;
  };
}

/**
 * The span under way follows the work as it does in OpenTelemetry's own context, so that what is deep inside need not be handed
 * one. Where tracing is off there is never any, and what is below costs one look.
 */
const current = new AsyncLocalStorage<Span>();

export const activeSpan = (): Span | undefined => current.getStore();

export const within = <T>(span: Span | undefined, work: () => T): T =>
  span === undefined ? work() : current.run(span, work);

/**
 * Does the work in no span. For what outlives the request that happened to begin it, or serves several: connections, streams, timers.
 * Whatever is created keeps the span under way, and its later events would be logged as that request's.
 */
export const withoutSpan = <T>(work: () => T): T =>
  activeSpan() === undefined ? work() : current.exit(work);

/** Does the work in a child of the span under way, which ends with it. Without one: only the work. */
export function traced<T>(
  name: string,
  work: (span: Span | undefined) => Promise<T>,
  options?: () => SpanOptions,
): Promise<T> {
  const parent = activeSpan();
  return parent ? inSpan(parent.child(name, options?.()), work) : work(undefined);
}

/** Does the work in the span, and ends it. */
export async function inSpan<T>(span: Span, work: (span: Span) => Promise<T>): Promise<T> {
  try {
    return await current.run(span, () => work(span));
  } catch (error) {
    span.failed(typeOf(error));
    throw error;
  } finally {
    span.end();
  }
}

/** Errors of ours have a code of a closed list; those of others have a name. */
function typeOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown';
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name;
}
