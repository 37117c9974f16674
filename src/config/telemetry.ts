import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { z } from 'zod';
import { ConfigError } from './error.ts';
import type { TracingSettings } from '../platform/telemetry/tracing.ts';

const text = z.string().optional();

/**
 * OpenTelemetry's own names ("Environment Variable Specification"). Set for a whole machine, they may be meant for other programs:
 * they are looked at only where tracing is on. The SDK reads the rest of them: see `openTracing`.
 */
export const tracingEnvironment = {
  OTEL_SDK_DISABLED: text,
  OTEL_TRACES_EXPORTER: text,
  OTEL_EXPORTER_OTLP_ENDPOINT: text,
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: text,
  OTEL_EXPORTER_OTLP_PROTOCOL: text,
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: text,
  OTEL_EXPORTER_OTLP_CERTIFICATE: text,
  OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: text,
  OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: text,
  OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE: text,
  OTEL_EXPORTER_OTLP_CLIENT_KEY: text,
  OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY: text,
  OTEL_TRACES_SAMPLER: text,
  OTEL_TRACES_SAMPLER_ARG: text,
  OTEL_BSP_SCHEDULE_DELAY: text,
  OTEL_BSP_EXPORT_TIMEOUT: text,
  OTEL_BSP_MAX_QUEUE_SIZE: text,
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: text,
};
type Settings = z.output<z.ZodObject<typeof tracingEnvironment>>;

const ENDPOINTS = ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT'] as const;

/** Of `OTEL_TRACES_SAMPLER`: the share of traces it takes, undefined where `OTEL_TRACES_SAMPLER_ARG` says it. */
const RATIOS: Readonly<Record<string, number | undefined>> = {
  always_on: 1,
  always_off: 0,
  traceidratio: undefined,
};
const PARENT_BASED = 'parentbased_';

/**
 * Undefined: no tracing, as no address of a collector is set, or it is switched off.
 * @throws ConfigError for what cannot be done as it is asked.
 */
export function readTracing(settings: Settings): TracingSettings | undefined {
  const isDisabled = settings.OTEL_SDK_DISABLED?.toLowerCase() === 'true';
  const endpoint = ENDPOINTS.find(name => settings[name] !== undefined);
  if (isDisabled || settings.OTEL_TRACES_EXPORTER === 'none' || endpoint === undefined) return undefined;
  requireWay(settings, endpoint);
  return {
    sampler: sampler(settings),
    batch: batch(settings),
    tls: tls(settings),
  };
}

/** Of the ways there are to a collector, the one that the packages are here for. */
function requireWay(settings: Settings, endpoint: (typeof ENDPOINTS)[number]): void {
  const { OTEL_TRACES_EXPORTER: exporter = 'otlp' } = settings;
  if (exporter !== 'otlp')
    throw new ConfigError(
      `OTEL_TRACES_EXPORTER: "${exporter}" is not supported; leave it out, or set otlp or none`,
    );
  const url = URL.parse(settings[endpoint] ?? '');
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:')
    throw new ConfigError(`${endpoint}: must be an http(s) URL, such as http://127.0.0.1:4318`);
  const names = ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'OTEL_EXPORTER_OTLP_PROTOCOL'] as const;
  const name = names.find(one => settings[one] !== undefined);
  if (name === undefined || settings[name] === 'http/protobuf') return;
  throw new ConfigError(
    `${name}: traces are sent by http/protobuf only, not by "${settings[name]}"; collectors take it on port 4318`,
  );
}

function sampler(settings: Settings): TracingSettings['sampler'] {
  const name = settings.OTEL_TRACES_SAMPLER ?? 'parentbased_always_on';
  const parentBased = name.startsWith(PARENT_BASED);
  const own = parentBased ? name.slice(PARENT_BASED.length) : name;
  if (!Object.hasOwn(RATIOS, own)) {
    const names = Object.keys(RATIOS).flatMap(one => [one, PARENT_BASED + one]);
    throw new ConfigError(`OTEL_TRACES_SAMPLER: must be one of ${names.join(', ')}`);
  }
  const share = settings.OTEL_TRACES_SAMPLER_ARG ?? '1';
  const ratio = RATIOS[own] ?? (/^(\d|\d?\.\d+)$/.test(share) ? Number(share) : NaN);
  if (!(ratio <= 1)) throw new ConfigError('OTEL_TRACES_SAMPLER_ARG: must be a number from 0 to 1');
  return { parentBased, ratio };
}

function batch(settings: Settings): TracingSettings['batch'] {
  const maxQueueSize = whole(settings, 'OTEL_BSP_MAX_QUEUE_SIZE', 1);
  const maxExportBatchSize = whole(settings, 'OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 1);
  // Where one is not set, the specification's own value stands.
  if ((maxExportBatchSize ?? 512) > (maxQueueSize ?? 2_048))
    throw new ConfigError('OTEL_BSP_MAX_EXPORT_BATCH_SIZE: must not be larger than OTEL_BSP_MAX_QUEUE_SIZE');
  return {
    scheduledDelayMillis: whole(settings, 'OTEL_BSP_SCHEDULE_DELAY', 0),
    exportTimeoutMillis: whole(settings, 'OTEL_BSP_EXPORT_TIMEOUT', 1),
    maxQueueSize,
    maxExportBatchSize,
  };
}

function whole(
  settings: Settings,
  name: Extract<keyof Settings, `OTEL_BSP_${string}`>,
  smallest: number,
): number | undefined {
  const value = settings[name];
  if (value === undefined) return undefined;
  if (/^\d{1,9}$/.test(value) && Number(value) >= smallest) return Number(value);
  throw new ConfigError(`${name}: must be a whole number from ${smallest} to 999999999`);
}

function tls(settings: Settings): TracingSettings['tls'] {
  const files = {
    ca: fileOf(settings, 'CERTIFICATE'),
    cert: fileOf(settings, 'CLIENT_CERTIFICATE'),
    key: fileOf(settings, 'CLIENT_KEY'),
  };
  try {
    // What is no certificate would be taken for none at all.
    if (files.ca !== undefined) void new X509Certificate(files.ca);
    createSecureContext(files);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError(
      `OTEL_EXPORTER_OTLP_…CERTIFICATE, …CLIENT_CERTIFICATE, …CLIENT_KEY: must be certificates and their key in PEM form (${reason})`,
    );
  }
  return files;
}

/** What is set for traces alone goes before what is set for all signals. */
function fileOf(
  settings: Settings,
  what: 'CERTIFICATE' | 'CLIENT_CERTIFICATE' | 'CLIENT_KEY',
): string | undefined {
  const names = [`OTEL_EXPORTER_OTLP_TRACES_${what}`, `OTEL_EXPORTER_OTLP_${what}`] as const;
  const name = names.find(one => settings[one] !== undefined);
  if (name === undefined) return undefined;
  try {
    return readFileSync(settings[name] ?? '', 'utf8');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unreadable';
    throw new ConfigError(`${name}: must be the path of a file that can be read (${code})`);
  }
}
