import {
  defaultTextMapGetter,
  defaultTextMapSetter,
  diag,
  DiagLogLevel,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  type Context,
  type Span as OtelSpan,
  type Tracer,
} from '@opentelemetry/api';
import { setGlobalErrorHandler, W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import {
  defaultResource,
  detectResources,
  resourceAttributesEnvDetector,
  resourceFromAttributes,
  serviceInstanceIdDetector,
  serviceNameEnvDetector,
} from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import { settledWithin, type Clock } from '../time.ts';
import { ThrottledLog } from './throttled-log.ts';
import type { Log } from './log.ts';
import type { Attributes, Span, SpanOptions, TraceContext, Tracing, TracingSettings } from './tracing.ts';

/** How long shutdown waits for the collector. */
const FLUSH_MS = 5_000;
const FLUSH_FAILING_MS = 500;
/** The maximum length of a value, in characters. */
const MAX_VALUE = 200;

const KINDS = { server: SpanKind.SERVER, client: SpanKind.CLIENT };
const propagator = new W3CTraceContextPropagator();

interface TracingParts {
  readonly settings: TracingSettings;
  readonly version: string;
  readonly log: Log;
  readonly clock: Clock;
}

/**
 * Traces with OpenTelemetry's SDK, exported with OTLP over HTTP as protobuf. Only this file imports its
 * packages, and it is loaded only if tracing is on. The SDK itself reads the standard variables for the
 * address (`OTEL_EXPORTER_OTLP_[TRACES_]ENDPOINT`), the transport (`…_HEADERS`, `…_TIMEOUT`, `…_COMPRESSION`)
 * and the service (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`); the others are passed as settings.
 */
export function openTracing({ settings, version, log, clock }: TracingParts): Tracing {
  const say = throttledWarnings(log, clock);
  let isFailing = false;
  // The SDK quotes settings, such as headers with keys, in its messages, which must not reach the log.
  const told = (message: string) => say(message.replaceAll(/\([^)]*\)|'[^']*'/g, '…'));
  diag.setLogger(
    { error: told, warn: told, info() {}, debug() {}, verbose() {} },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
  setGlobalErrorHandler(error => {
    isFailing = true;
    say('failed to export traces: they are lost until the collector accepts them', reasonOf(error));
  });
  // Aborts pending exports and prevents retries: only lost connections are retried.
  const cut = new AbortController();
  const agentOptions = { keepAlive: true, signal: cut.signal, ...present(settings.tls) };
  const exporter = new OTLPTraceExporter({ httpAgentOptions: agentOptions });
  const watched = {
    export: (spans: Parameters<typeof exporter.export>[0], done: Parameters<typeof exporter.export>[1]) =>
      exporter.export(spans, result => {
        if (result.error === undefined) isFailing = false;
        done(result);
      }),
    forceFlush: () => exporter.forceFlush(),
    shutdown: () => exporter.shutdown(),
  };
  const root = new TraceIdRatioBasedSampler(settings.sampler.ratio);
  const provider = new TracerProvider({
    resource: defaultResource()
      .merge(resourceFromAttributes({ 'service.name': 'switchboard', 'service.version': version }))
      .merge(
        detectResources({
          detectors: [serviceInstanceIdDetector, resourceAttributesEnvDetector, serviceNameEnvDetector],
        }),
      ),
    sampler: settings.sampler.parentBased ? new ParentBasedSampler({ root }) : root,
    spanLimits: { attributeCountLimit: 32, attributeValueLengthLimit: MAX_VALUE },
    spanProcessors: [new BatchSpanProcessor({ exporter: watched, ...present(settings.batch) })],
  });
  const tracer = provider.getTracer('switchboard', version);
  return {
    serve: (name, from) =>
      new ExportedSpan(tracer, start(tracer, name, { kind: 'server' }, extracted(ROOT_CONTEXT, from))),
    async close() {
      const flushed = provider
        .shutdown()
        .catch((error: unknown) => say('failed to export the last traces', reasonOf(error)));
      await settledWithin(flushed, isFailing ? FLUSH_FAILING_MS : FLUSH_MS);
      cut.abort();
    },
  };
}

class ExportedSpan implements Span {
  readonly #tracer: Tracer;
  readonly #span: OtelSpan;
  #context: TraceContext | undefined;

  constructor(tracer: Tracer, span: OtelSpan) {
    this.#tracer = tracer;
    this.#span = span;
  }

  get logFields(): { trace_id: string; span_id: string } {
    const { traceId, spanId } = this.#span.spanContext();
    return { trace_id: traceId, span_id: spanId };
  }

  get context(): TraceContext {
    if (this.#context) return this.#context;
    const carrier: Record<string, string> = {};
    propagator.inject(trace.setSpan(ROOT_CONTEXT, this.#span), carrier, defaultTextMapSetter);
    // An invalid trace context of a caller is dropped completely.
    if (carrier['tracestate'] === '') delete carrier['tracestate'];
    return (this.#context = carrier);
  }

  child(name: string, options: SpanOptions = {}): Span {
    const own = trace.setSpan(ROOT_CONTEXT, this.#span);
    const parent = extracted(own, options.from);
    const links = parent === own ? [] : [{ context: this.#span.spanContext() }];
    return new ExportedSpan(this.#tracer, start(this.#tracer, name, options, parent, links));
  }

  rename(name: string): void {
    this.#span.updateName(name);
  }

  set(attributes: Attributes): void {
    this.#span.setAttributes(present(attributes));
  }

  failed(errorType: string): void {
    this.#span.setAttribute('error.type', errorType);
    this.#span.setStatus({ code: SpanStatusCode.ERROR });
  }

  end(): void {
    this.#span.end();
  }
}

const start = (
  tracer: Tracer,
  name: string,
  { kind, attributes = {} }: SpanOptions,
  parent: Context,
  links: { context: ReturnType<OtelSpan['spanContext']> }[] = [],
): OtelSpan =>
  tracer.startSpan(
    name,
    { kind: kind ? KINDS[kind] : SpanKind.INTERNAL, attributes: present(attributes), links },
    parent,
  );

/** Returns the base itself if the carrier has no valid context. */
const extracted = (base: Context, carrier: unknown): Context =>
  typeof carrier === 'object' && carrier !== null
    ? propagator.extract(base, carrier, defaultTextMapGetter)
    : base;

/** Removes undefined members. */
const present = <T extends object>(values: T): { [K in keyof T]: Exclude<T[K], undefined> } =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]: Exclude<T[K], undefined>;
  };

/** A collector's response and an address may be long, and its text adds nothing to its status. */
function reasonOf(error: unknown): string {
  const { code, message = '' } = error as { code?: unknown; message?: string };
  return [code, message.slice(0, MAX_VALUE)].filter(part => part !== undefined && part !== '').join(' ');
}

/** Warns once a minute per kind; numbers are ignored in comparing messages. */
function throttledWarnings(log: Log, clock: Clock) {
  const throttled = new ThrottledLog(log, clock);
  return (message: string, reason?: string): void => {
    const text = `tracing: ${message.slice(0, MAX_VALUE)}`;
    throttled.warn(reason === undefined ? {} : { reason }, text, text.replaceAll(/\d+/g, '#'));
  };
}
