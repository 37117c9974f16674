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

/** How long a stop waits for the collector, and for one that failed last. */
const FLUSH_MS = 5_000;
const FLUSH_FAILING_MS = 500;
/** Of a value, in characters. */
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
 * Traces by OpenTelemetry's SDK, sent by OTLP over HTTP as protobuf. The only importer of its packages, and imported only when
 * tracing is on. The SDK itself reads the standard variables that say where to (`OTEL_EXPORTER_OTLP_[TRACES_]ENDPOINT`), how
 * (`…_HEADERS`, `…_TIMEOUT`, `…_COMPRESSION`) and whose (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`); the others come as settings.
 */
export function openTracing({ settings, version, log, clock }: TracingParts): Tracing {
  const say = throttledWarnings(log, clock);
  let isFailing = false;
  // What the SDK quotes of the settings, such as headers with a key in them, stays out of the log.
  const told = (message: string) => say(message.replaceAll(/\([^)]*\)|'[^']*'/g, '…'));
  diag.setLogger(
    { error: told, warn: told, info() {}, debug() {}, verbose() {} },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
  setGlobalErrorHandler(error => {
    isFailing = true;
    say('traces could not be exported: they are lost until the collector takes them', reasonOf(error));
  });
  // Cuts what still waits for the collector, and keeps the exporter from trying again: only lost connections are retried.
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
        .catch((error: unknown) => say('the last traces could not be exported', reasonOf(error)));
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
    // Of a caller's that did not hold, nothing is left.
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

/** The base itself, where nothing came that holds. */
const extracted = (base: Context, carrier: unknown): Context =>
  typeof carrier === 'object' && carrier !== null
    ? propagator.extract(base, carrier, defaultTextMapGetter)
    : base;

/** Without what is undefined. */
const present = <T extends object>(values: T): { [K in keyof T]: Exclude<T[K], undefined> } =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]: Exclude<T[K], undefined>;
  };

/** A collector's answer and an address may be long, and its own text says nothing that its status does not. */
function reasonOf(error: unknown): string {
  const { code, message = '' } = error as { code?: unknown; message?: string };
  return [code, message.slice(0, MAX_VALUE)].filter(part => part !== undefined && part !== '').join(' ');
}

/** Warns of one kind at most once a minute; numbers do not make a kind. */
function throttledWarnings(log: Log, clock: Clock) {
  const throttled = new ThrottledLog(log, clock);
  return (message: string, reason?: string): void => {
    const text = `tracing: ${message.slice(0, MAX_VALUE)}`;
    throttled.warn(reason === undefined ? {} : { reason }, text, text.replaceAll(/\d+/g, '#'));
  };
}
