import type { IncomingHttpHeaders } from 'node:http';
import { listen, readBytes } from './upstreams/http.ts';

/** The far side of tracing: what an OpenTelemetry collector's OTLP receiver is to the program. It decodes what came, and keeps it. */
export interface Collector extends AsyncDisposable {
  /** For OTEL_EXPORTER_OTLP_ENDPOINT. */
  readonly endpoint: string;
  readonly requests: readonly { readonly path: string; readonly headers: IncomingHttpHeaders }[];
  readonly spans: readonly ExportedSpan[];
  /** Every byte that came, as text: to look for what must not be in it. */
  readonly bytes: string;
}

export interface ExportedSpan {
  readonly name: string;
  readonly kind: 'internal' | 'server' | 'client' | 'other';
  readonly traceId: string;
  readonly spanId: string;
  /** '' for the first of a trace. */
  readonly parentSpanId: string;
  readonly attributes: Readonly<Record<string, string | number | boolean>>;
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[];
  readonly isError: boolean;
  /** Of whose it is: `service.name` and others. */
  readonly resource: Readonly<Record<string, string | number | boolean>>;
}

/** @param status what it answers with; `hang`: it takes requests and never answers. */
export async function startCollector(status: number | 'hang' = 200): Promise<Collector> {
  const requests: { path: string; headers: IncomingHttpHeaders }[] = [];
  const spans: ExportedSpan[] = [];
  let bytes = '';
  const listening = await listen((request, response) => {
    void readBytes(request).then(body => {
      requests.push({ path: request.url ?? '', headers: request.headers });
      bytes += body.toString('latin1');
      spans.push(...spansIn(body));
      if (status !== 'hang') response.writeHead(status, { 'content-type': 'application/x-protobuf' }).end();
    });
  });
  return {
    endpoint: listening.origin,
    requests,
    spans,
    get bytes() {
      return bytes;
    },
    [Symbol.asyncDispose]: () => listening[Symbol.asyncDispose](),
  };
}

type Field = Buffer | bigint;

/** The fields of a protobuf message by number (Protocol Buffers, "Encoding"): bytes, or a number of any wire type. */
function fieldsOf(message: Buffer): Map<number, Field[]> {
  const fields = new Map<number, Field[]>();
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = message.readUInt8(at++);
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  const fixed = (bytes: number): bigint => {
    const value = bytes === 8 ? message.readBigUInt64LE(at) : BigInt(message.readUInt32LE(at));
    at += bytes;
    return value;
  };
  const slice = (): Buffer => {
    const length = Number(varint());
    at += length;
    return message.subarray(at - length, at);
  };
  const readers = [varint, () => fixed(8), slice, undefined, undefined, () => fixed(4)];
  while (at < message.length) {
    const tag = Number(varint());
    const value = readers[tag & 7]?.();
    if (value === undefined) throw new Error(`wire type ${tag & 7}`);
    fields.set(tag >> 3, [...(fields.get(tag >> 3) ?? []), value]);
  }
  return fields;
}

const messages = (fields: Map<number, Field[]>, number: number) =>
  (fields.get(number) ?? []).filter(field => Buffer.isBuffer(field)).map(fieldsOf);
const bytesOf = (fields: Map<number, Field[]>, number: number) => {
  const [field] = fields.get(number) ?? [];
  return Buffer.isBuffer(field) ? field : Buffer.alloc(0);
};
const numberOf = (fields: Map<number, Field[]>, number: number) => Number(fields.get(number)?.[0] ?? 0);

/** opentelemetry.proto.common.v1.KeyValue; strings, booleans and whole numbers are all that is sent. */
const attributesOf = (fields: Map<number, Field[]>, number: number): ExportedSpan['attributes'] =>
  Object.fromEntries(
    messages(fields, number).map(pair => {
      const [value = new Map<number, Field[]>()] = messages(pair, 2);
      const text = value.has(1) ? bytesOf(value, 1).toString() : undefined;
      const flag = value.has(2) ? numberOf(value, 2) === 1 : undefined;
      return [bytesOf(pair, 1).toString(), text ?? flag ?? numberOf(value, 3)];
    }),
  );

const KINDS = ['other', 'internal', 'server', 'client'] as const;

/** opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest */
const spansIn = (body: Buffer): ExportedSpan[] =>
  messages(fieldsOf(body), 1).flatMap(resourceSpans => {
    const [resource = new Map<number, Field[]>()] = messages(resourceSpans, 1);
    return messages(resourceSpans, 2).flatMap(scopeSpans =>
      messages(scopeSpans, 2).map(span => ({
        name: bytesOf(span, 5).toString(),
        kind: KINDS[numberOf(span, 6)] ?? 'other',
        traceId: bytesOf(span, 1).toString('hex'),
        spanId: bytesOf(span, 2).toString('hex'),
        parentSpanId: bytesOf(span, 4).toString('hex'),
        attributes: attributesOf(span, 9),
        links: messages(span, 13).map(link => ({
          traceId: bytesOf(link, 1).toString('hex'),
          spanId: bytesOf(link, 2).toString('hex'),
        })),
        isError: messages(span, 15).some(status => numberOf(status, 3) === 2),
        resource: attributesOf(resource, 1),
      })),
    );
  });
