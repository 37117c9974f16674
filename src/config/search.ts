import { z } from 'zod';
import { ConfigError } from './error.ts';

const DEFAULT_BASE_URL = 'https://api.openai.com/v1';
const DEFAULT_MODEL = 'text-embedding-3-small';

export const embeddingEnvironment = {
  OPENAI_API_KEY: z
    .string()
    .regex(/^[\x21-\x7e]+$/, 'must be visible ASCII without spaces')
    .optional(),
  OPENAI_BASE_URL: z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' }).optional(),
  EMBEDDING_MODEL: z.string().min(1).max(200).optional(),
};

/** An API that embeds in place of the local model. */
export interface EmbeddingConfig {
  readonly baseUrl: string;
  /** It must reach no log and no error. Absent: the server at `baseUrl` wants none. */
  readonly apiKey: string | undefined;
  readonly model: string;
}

/**
 * Undefined where the local model embeds: with neither a key nor a base URL.
 * @throws ConfigError for settings that contradict each other.
 */
export function readEmbedding(settings: {
  readonly OPENAI_API_KEY?: string | undefined;
  readonly OPENAI_BASE_URL?: string | undefined;
  readonly EMBEDDING_MODEL?: string | undefined;
}): EmbeddingConfig | undefined {
  const { OPENAI_API_KEY: apiKey, OPENAI_BASE_URL: baseUrl, EMBEDDING_MODEL: model } = settings;
  if (apiKey === undefined && baseUrl === undefined) {
    if (model === undefined) return undefined;
    throw new ConfigError(
      'EMBEDDING_MODEL: needs OPENAI_API_KEY, or OPENAI_BASE_URL for a server that wants no key',
    );
  }
  if (baseUrl !== undefined && new URL(baseUrl).username + new URL(baseUrl).password !== '')
    throw new ConfigError('OPENAI_BASE_URL: must hold no user or password; the key is OPENAI_API_KEY');
  return { baseUrl: baseUrl ?? DEFAULT_BASE_URL, apiKey, model: model ?? DEFAULT_MODEL };
}
