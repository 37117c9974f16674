/**
 * Writes src/openapi.ts, the types of the document that Switchboard serves at /openapi.json.
 * `--check` writes nothing and fails if the file is out of date.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import openapiTS, { astToString, type OpenAPI3 } from 'openapi-typescript';
import { format, resolveConfig } from 'prettier';
import { adminEndpoints } from '../src/api/admin/table.ts';
import { restEndpoints } from '../src/api/rest/endpoints.ts';
import { openApiDocument } from '../src/api/rest/openapi.ts';

const file = fileURLToPath(new URL('src/openapi.ts', import.meta.url));
const endpoints = [...restEndpoints, ...adminEndpoints];
// As JSON, which is what clients read. No type depends on the version or the address.
const document = JSON.stringify(openApiDocument({ version: '', publicUrl: undefined, endpoints }));
const types = await openapiTS(JSON.parse(document) as OpenAPI3, {
  // A field with a default can be left out of a request.
  defaultNonNullable: false,
});
const head = '// Generated from the OpenAPI document by `npm run build:client`.\n\n';
const text = await format(head + astToString(types), { ...(await resolveConfig(file)), filepath: file });

if (text !== (await readFile(file, 'utf8').catch(() => ''))) {
  if (process.argv.includes('--check')) {
    console.error('client/src/openapi.ts is out of date: run npm run build:client');
    process.exitCode = 1;
  } else await writeFile(file, text);
}
