import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { z } from 'zod';
import { LOG_FORMATS, LOG_LEVELS, type LogSettings } from '../platform/telemetry/log.ts';
import type { TracingSettings } from '../platform/telemetry/tracing.ts';
import { ConfigError, setting } from './setting.ts';

export const logSettings = {
  LOG_LEVEL: setting(
    z.enum(LOG_LEVELS).default('info'),
    '`trace`, `debug`, `info`, `warn`, `error`, `fatal` or `silent`.',
  ),
  LOG_FORMAT: setting(
    z.enum(LOG_FORMATS).optional(),
    'Format of the log on stderr: `text` or `json`, one line per event.',
    '`text` on a terminal, `json` elsewhere',
  ),
  NO_COLOR: setting(z.string().optional(), 'Any value disables colours in `LOG_FORMAT=text`.'),
};

export const readLog = (settings: z.output<z.ZodObject<typeof logSettings>>): LogSettings => ({
  level: settings.LOG_LEVEL,
  format: settings.LOG_FORMAT,
  hasColours: settings.NO_COLOR === undefined,
});

const text = z.string().optional();

/**
 * The variables of the OpenTelemetry "Environment Variable Specification". They may be set machine-wide for other programs,
 * so they are validated only if tracing is on. The SDK itself reads only the address, the headers and the resource. The
 * sampler, the batching and, with a custom agent, the TLS files are passed to it as options.
 */
export const tracingSettings = {
  OTEL_EXPORTER_OTLP_ENDPOINT: setting(
    text,
    'Address of an OpenTelemetry collector, such as `http://127.0.0.1:4318`. Without it, tracing is off.',
  ),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: setting(
    text,
    'Address for traces only, with its path. It takes precedence over the one above.',
  ),
  OTEL_SDK_DISABLED: setting(text, '`true` switches tracing off.'),
  OTEL_TRACES_EXPORTER: setting(text, '`otlp`, or `none` to switch tracing off.', '`otlp`'),
  OTEL_EXPORTER_OTLP_PROTOCOL: setting(text, 'Only `http/protobuf` is supported.', '`http/protobuf`'),
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: text,
  OTEL_EXPORTER_OTLP_CERTIFICATE: setting(text, "PEM file with the collector's certificate authority."),
  OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: text,
  OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: setting(text, 'PEM file with the client certificate.'),
  OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE: text,
  OTEL_EXPORTER_OTLP_CLIENT_KEY: setting(text, 'PEM file with the key of the client certificate.'),
  OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY: text,
  OTEL_TRACES_SAMPLER: setting(
    text,
    'Which traces are exported: `always_on`, `always_off`, `traceidratio`, or one of these after `parentbased_`.',
    '`parentbased_always_on`',
  ),
  OTEL_TRACES_SAMPLER_ARG: setting(text, 'Ratio of traces for `traceidratio`, from 0 to 1.', '`1`'),
  OTEL_BSP_SCHEDULE_DELAY: setting(text, 'Milliseconds between exports.', '`5000`'),
  OTEL_BSP_EXPORT_TIMEOUT: setting(text, 'Timeout of an export in milliseconds.', '`30000`'),
  OTEL_BSP_MAX_QUEUE_SIZE: setting(text, 'Maximum number of spans waiting for export.', '`2048`'),
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: setting(text, 'Maximum number of spans per export.', '`512`'),
  OTEL_EXPORTER_OTLP_HEADERS: setting(text, 'Headers for the collector, such as `api-key=…`.'),
  OTEL_EXPORTER_OTLP_TIMEOUT: setting(
    text,
    'Timeout of a request to the collector in milliseconds.',
    '`10000`',
  ),
  OTEL_EXPORTER_OTLP_COMPRESSION: setting(text, '`gzip` or `none`.', '`none`'),
  OTEL_SERVICE_NAME: setting(text, 'Name of this service in traces.', '`switchboard`'),
  OTEL_RESOURCE_ATTRIBUTES: setting(
    text,
    'Attributes of this service, such as `deployment.environment.name=prod`.',
  ),
};
type Settings = z.output<z.ZodObject<typeof tracingSettings>>;

const ENDPOINTS = ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT'] as const;
const PROTOCOLS = ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'OTEL_EXPORTER_OTLP_PROTOCOL'] as const;

/** The ratio of sampled traces. Undefined: OTEL_TRACES_SAMPLER_ARG sets it. */
const RATIOS: Readonly<Record<string, number | undefined>> = {
  always_on: 1,
  always_off: 0,
  traceidratio: undefined,
};
const PARENT_BASED = 'parentbased_';

/**
 * Returns undefined if tracing is off: no collector is configured, or tracing is disabled.
 * @throws ConfigError for an invalid value
 */
export function readTracing(settings: Settings): TracingSettings | undefined {
  const isDisabled = settings.OTEL_SDK_DISABLED?.toLowerCase() === 'true';
  const endpoint = ENDPOINTS.find(name => settings[name] !== undefined);
  if (isDisabled || settings.OTEL_TRACES_EXPORTER === 'none' || endpoint === undefined) return undefined;
  requireOtlpOverHttp(settings, endpoint);
  return { sampler: sampler(settings), batch: batch(settings), tls: tls(settings) };
}

/** Refuses exporters and protocols whose packages are not installed. */
function requireOtlpOverHttp(settings: Settings, endpoint: (typeof ENDPOINTS)[number]): void {
  const { OTEL_TRACES_EXPORTER: exporter = 'otlp' } = settings;
  if (exporter !== 'otlp')
    throw new ConfigError(
      `OTEL_TRACES_EXPORTER: "${exporter}" is not supported; unset it, or use otlp or none`,
    );
  const url = URL.parse(settings[endpoint] ?? '');
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:')
    throw new ConfigError(`${endpoint}: must be an http(s) URL, such as http://127.0.0.1:4318`);
  const name = PROTOCOLS.find(one => settings[one] !== undefined);
  if (name === undefined || settings[name] === 'http/protobuf') return;
  throw new ConfigError(
    `${name}: only http/protobuf is supported, not "${settings[name]}"; collectors accept it on port 4318`,
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
  const whole = (name: Extract<keyof Settings, `OTEL_BSP_${string}`>, min: number): number | undefined => {
    const value = settings[name];
    if (value === undefined) return undefined;
    if (/^\d{1,9}$/.test(value) && Number(value) >= min) return Number(value);
    throw new ConfigError(`${name}: must be a whole number from ${min} to 999999999`);
  };
  const maxQueueSize = whole('OTEL_BSP_MAX_QUEUE_SIZE', 1);
  const maxExportBatchSize = whole('OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 1);
  // Unset variables have the default of the specification.
  if ((maxExportBatchSize ?? 512) > (maxQueueSize ?? 2_048))
    throw new ConfigError('OTEL_BSP_MAX_EXPORT_BATCH_SIZE: must not be larger than OTEL_BSP_MAX_QUEUE_SIZE');
  return {
    scheduledDelayMillis: whole('OTEL_BSP_SCHEDULE_DELAY', 0),
    exportTimeoutMillis: whole('OTEL_BSP_EXPORT_TIMEOUT', 1),
    maxQueueSize,
    maxExportBatchSize,
  };
}

function tls(settings: Settings): TracingSettings['tls'] {
  const files = {
    ca: fileOf(settings, 'CERTIFICATE'),
    cert: fileOf(settings, 'CLIENT_CERTIFICATE'),
    key: fileOf(settings, 'CLIENT_KEY'),
  };
  try {
    // A secure context ignores an invalid certificate authority and would trust the system's authorities instead.
    if (files.ca !== undefined) void new X509Certificate(files.ca);
    createSecureContext(files);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError(
      `OTEL_EXPORTER_OTLP_…CERTIFICATE, …CLIENT_CERTIFICATE, …CLIENT_KEY: must be certificates and their key in PEM format (${reason})`,
    );
  }
  return files;
}

/** Returns the contents of the file for traces, or else of the one for all signals. */
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
    throw new ConfigError(`${name}: must be the path of a readable file (${code})`);
  }
}
