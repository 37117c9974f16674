import { AsyncLocalStorage } from 'node:async_hooks';

/** Attributes of a span: short values from closed lists, numbers and ids, but never text from a caller. */
export type Attributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** W3C Trace Context as headers or message members: `traceparent`, `tracestate`. */
export type TraceContext = Readonly<Record<string, string>>;

export interface SpanOptions {
  /** Default `internal`. */
  readonly kind?: 'server' | 'client';
  readonly attributes?: Attributes;
  /** A carrier whose valid trace context becomes the parent; the creating span is then linked. */
  readonly from?: unknown;
}

/** A unit of work in a trace. An unsampled span has ids and context too but is not exported. */
export interface Span {
  /** Log fields, named as in OpenTelemetry's log formats. */
  readonly logFields: { readonly trace_id: string; readonly span_id: string };
  /** Context to send with a call, so that the other side can continue the trace. */
  readonly context: TraceContext;
  child(name: string, options?: SpanOptions): Span;
  rename(name: string): void;
  set(attributes: Attributes): void;
  /** @param errorType `error.type`: an error code or a status */
  failed(errorType: string): void;
  end(): void;
}

export interface Tracing {
  /** Creates the span of an incoming request. @param from its headers: a valid `traceparent` makes the caller's span its parent */
  serve(name: string, from: unknown): Span;
  /** Exports ended spans, in bounded time. Never rejects. */
  close(): Promise<void>;
}

export interface TracingSettings {
  /** The traces to export: those without a decision of the caller (`parentBased`), or all. */
  readonly sampler: { readonly parentBased: boolean; readonly ratio: number };
  /** Absent: the SDK's own limits, as in the specification. */
  readonly batch: {
    readonly scheduledDelayMillis?: number | undefined;
    readonly exportTimeoutMillis?: number | undefined;
    readonly maxQueueSize?: number | undefined;
    readonly maxExportBatchSize?: number | undefined;
  };
  /** In PEM format, for a collector with TLS. */
  readonly tls: {
    readonly ca?: string | undefined;
    readonly cert?: string | undefined;
    readonly key?: string | undefined;
  };
}

/**
 * The current span follows the work as in OpenTelemetry's own context, so that inner code need not receive it
 * as an argument. If tracing is off, it is always undefined, and each use costs one lookup.
 */
const current = new AsyncLocalStorage<Span>();

export const activeSpan = (): Span | undefined => current.getStore();

export const within = <T>(span: Span | undefined, work: () => T): T =>
  span === undefined ? work() : current.run(span, work);

/**
 * Runs the work outside any span, for things that outlive the current request or serve several: connections, streams, timers.
 * New objects keep the current span, and their later events would be logged as part of this request.
 */
export const withoutSpan = <T>(work: () => T): T =>
  activeSpan() === undefined ? work() : current.exit(work);

/** Runs the work in a child of the current span, which ends with it. Without a current span, only runs the work. */
export function traced<T>(
  name: string,
  work: (span: Span | undefined) => Promise<T>,
  options?: () => SpanOptions,
): Promise<T> {
  const parent = activeSpan();
  return parent ? inSpan(parent.child(name, options?.()), work) : work(undefined);
}

/** Runs the work in the span and ends it. */
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

/** Our errors have a code from a closed list; others have a name. */
function typeOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown';
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name;
}
