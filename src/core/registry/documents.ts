import { z } from 'zod';

/**
 * The documents of the registry API v0.1 (OpenAPI of 2025-12-01, server.json of 2025-12-11), read leniently: what is needed must be
 * there, everything else may be, and stays.
 */
export const SERVER_SCHEMA = 'https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json';
/** Where a registry says what it says about an entry, as opposed to the entry's publisher. */
export const OFFICIAL = 'io.modelcontextprotocol.registry/official';
/** The same of Switchboard, beside it. */
export const OWN = 'dev.switchboard/server';

const text = (max: number) => z.string().max(max);
const inputSchema = z.looseObject({
  value: text(4_096).nullish(),
  default: text(4_096).nullish(),
  isRequired: z.boolean().nullish(),
  isSecret: z.boolean().nullish(),
});

export const remoteSchema = z.looseObject({
  type: text(64),
  url: text(2_048),
  headers: z
    .array(z.looseObject({ ...inputSchema.shape, name: text(256) }))
    .max(100)
    .nullish(),
  variables: z.record(z.string(), inputSchema).nullish(),
});
export type Remote = z.output<typeof remoteSchema>;

const serverSchema = z.looseObject({
  name: text(200)
    .min(3)
    .regex(/^[a-zA-Z0-9.-]+\/[a-zA-Z0-9._-]+$/, 'must be NAMESPACE/NAME'),
  description: text(4_000).default(''),
  version: text(255).min(1),
  title: text(200).nullish(),
  websiteUrl: text(2_048).nullish(),
  repository: z.looseObject({ url: text(2_048).nullish() }).nullish(),
  remotes: z.array(z.unknown()).max(50).nullish(),
});

/** `isLatest` and the times are absent where a registry does not say. */
const officialSchema = z.looseObject({
  status: z.enum(['active', 'deprecated', 'deleted']).default('active'),
  statusMessage: text(2_000).nullish(),
  publishedAt: z.iso.datetime({ offset: true }).nullish(),
  updatedAt: z.iso.datetime({ offset: true }).nullish(),
  isLatest: z.boolean().nullish(),
});

/** What Switchboard tells another Switchboard beyond what the standard has room for. */
const ownSchema = z.looseObject({
  description: text(4_000).optional(),
  categories: z.array(text(64).min(1)).max(20).optional(),
});

export const responseSchema = z.looseObject({
  server: serverSchema,
  _meta: z
    .looseObject({
      [OFFICIAL]: officialSchema.default({ status: 'active' }),
      // A wish, not a condition: a wrong one is as good as none.
      [OWN]: ownSchema.optional().catch(undefined),
    })
    .default({ [OFFICIAL]: { status: 'active' } }),
});
export type ServerResponse = z.output<typeof responseSchema>;

/** A page: its entries are looked at one by one, so that a bad one does not spoil the others. */
export const pageSchema = z.looseObject({
  servers: z.array(z.unknown()).nullable(),
  metadata: z.looseObject({ nextCursor: text(4_096).nullish() }).nullish(),
});
