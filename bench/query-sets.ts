import { readFile } from 'node:fs/promises';
import { gunzipSync } from 'node:zlib';
import { z } from 'zod';

const querySchema = z
  .object({
    query: z.string(),
    /** The only server that is known to answer it. */
    server: z.string().optional(),
    relevant_servers: z.array(z.string()).default([]),
    relevant_tools: z.array(z.object({ server: z.string(), tool: z.string() })).default([]),
  })
  .transform(({ server, relevant_servers, ...query }) => ({
    ...query,
    relevant_servers: server === undefined ? relevant_servers : [server],
  }));

/** A request and what answers it. */
export type Query = z.infer<typeof querySchema>;

/** A text file, compressed where its name ends so. */
export async function readText(file: string): Promise<string> {
  const bytes = await readFile(file);
  return (file.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
}

/** One query a line. */
export const readQueries = async (file: string): Promise<Query[]> =>
  (await readText(file))
    .split('\n')
    .filter(line => line.trim() !== '')
    .map(line => querySchema.parse(JSON.parse(line)));
