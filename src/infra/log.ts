import { pino, type DestinationStream, type Logger } from 'pino';

export type Log = Logger;

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Header and field names whose values never reach a log, at the depths at which this program logs objects. */
const SECRET_FIELDS = [
  'authorization',
  'cookie',
  '["x-api-key"]',
  '["set-cookie"]',
  'api_key',
  'access_token',
  'refresh_token',
];
const REDACTED = SECRET_FIELDS.flatMap(field => {
  const path = field.startsWith('[') ? field : `.${field}`;
  return [path.replace(/^\./, ''), `*${path}`, `*.*${path}`];
});

/** JSON lines on stderr (stdout is for what a person or a script asked for). */
export function createLog(level: LogLevel, destination?: DestinationStream): Log {
  return pino(
    {
      level,
      base: null,
      redact: { paths: REDACTED, censor: '[redacted]' },
      timestamp: pino.stdTimeFunctions.isoTime,
    },
    destination ?? pino.destination({ dest: 2, sync: true }),
  );
}
