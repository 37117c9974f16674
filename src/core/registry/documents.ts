import { z } from 'zod';

// Documents of the registry API v0.1 (OpenAPI of 2025-12-01, server.json of 2025-12-11), read leniently: unknown fields are kept.

export const SERVER_SCHEMA = 'https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json';
/** Member of `_meta` with the registry's own statements about an entry, as opposed to its publisher's. */
export const OFFICIAL = 'io.modelcontextprotocol.registry/official';
/** Member of `_meta` with Switchboard's statements about an entry. */
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

/** `isLatest` and the times are absent where a registry does not state them. */
const officialSchema = z.looseObject({
  status: z.enum(['active', 'deprecated', 'deleted']).default('active'),
  statusMessage: text(2_000).nullish(),
  publishedAt: z.iso.datetime({ offset: true }).nullish(),
  updatedAt: z.iso.datetime({ offset: true }).nullish(),
  isLatest: z.boolean().nullish(),
});

/** Fields that one Switchboard passes to another and the standard has no place for. */
const ownSchema = z.looseObject({
  description: text(4_000).optional(),
  categories: z.array(text(64).min(1)).max(20).optional(),
});

export const responseSchema = z.looseObject({
  server: serverSchema,
  _meta: z
    .looseObject({
      [OFFICIAL]: officialSchema.default({ status: 'active' }),
      // Optional: an invalid one is ignored.
      [OWN]: ownSchema.optional().catch(undefined),
    })
    .default({ [OFFICIAL]: { status: 'active' } }),
});
export type ServerResponse = z.output<typeof responseSchema>;

/** A page of entries. They are parsed one by one, so that a bad entry does not spoil the others. */
export const pageSchema = z.looseObject({
  servers: z.array(z.unknown()).nullable(),
  metadata: z.looseObject({ nextCursor: text(4_096).nullish() }).nullish(),
});
