import { readFileSync } from 'node:fs';
import { z } from 'zod';

/** An invalid setting. The message is one line that names the variable and says what to do. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/**
 * Adds the documentation of a variable, for docs/configuration.md, to its schema.
 * @param description Markdown; links are relative to docs/
 * @param shownDefault Markdown for the default column, if the schema's own default is not informative
 */
export const setting = <S extends z.ZodType>(schema: S, description: string, shownDefault?: string): S =>
  schema.meta({ description, ...(shownDefault === undefined ? {} : { shownDefault }) });

/** @param what names the number and its unit in the error, such as `minutes` */
export const wholeNumber = (min: number, max: number, what = 'a whole number') =>
  z.string().transform((text, context) => {
    const value = Number(text);
    if (/^\d{1,9}$/.test(text) && value >= min && value <= max) return value;
    context.addIssue(`must be ${what} from ${min} to ${max}`);
    return z.NEVER;
  });

export const someText = z.string().min(1);

export const flag = z.enum(['true', 'false'], 'must be true or false').transform(text => text === 'true');

/** A key or token: visible ASCII, as allowed in HTTP headers. */
export const visibleAscii = z.string().regex(/^[\x21-\x7e]+$/, 'must be visible ASCII without spaces');

export const httpUrl = z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' });

/** Without this check, a stray % in a password would fail much later, with the whole URL in the message. */
export const withoutStrayPercent = (schema: z.ZodURL) =>
  schema.regex(/^([^%]|%[\da-f]{2})*$/i, 'must write a % that is not an escape as %25');

export const hasCredentials = (url: string): boolean =>
  URL.canParse(url) && new URL(url).username + new URL(url).password !== '';

export const isHttps = (url: string): boolean => new URL(url).protocol === 'https:';

export const LOOPBACK_NAMES = ['localhost', '127.0.0.1', '[::1]'];

export const isOnLoopback = (url: string | URL): boolean => LOOPBACK_NAMES.includes(new URL(url).hostname);

/** The ids of tenants and the names of providers. */
export const PLAIN_NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;
export const plainName = z
  .string()
  .regex(PLAIN_NAME, 'must have 1 to 64 characters from a-z, 0-9, "_" and "-"');

/**
 * Reads JSON text, or a JSON file if the text does not start with `{`. Errors never quote the text, because it contains secrets.
 */
export function readJson(value: string, refuse: (why: string) => ConfigError): unknown {
  let text = value;
  if (!value.trimStart().startsWith('{')) {
    try {
      text = readFileSync(value, 'utf8');
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? String(error.code) : 'unreadable';
      throw refuse(`must be a JSON object, or the path of a readable JSON file (${code})`);
    }
  }
  try {
    return JSON.parse(text);
  } catch {
    throw refuse('is not valid JSON');
  }
}
