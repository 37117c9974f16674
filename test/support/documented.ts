import { Ajv2020 } from 'ajv/dist/2020.js';
import { adminEndpoints } from '../../src/api/admin/table.ts';
import { routerOf, type Endpoint } from '../../src/api/http/endpoint.ts';
import { openApiDocument } from '../../src/api/rest/openapi.ts';
import { restEndpoints } from '../../src/api/rest/endpoints.ts';
import type { Operation } from './fuzz/document.ts';

const endpoints: readonly Endpoint[] = [...restEndpoints, ...adminEndpoints];
const find = routerOf(endpoints);

let documented: ReturnType<typeof readDocument> | undefined;

function readDocument() {
  const { paths, components } = openApiDocument({ version: '', publicUrl: undefined, endpoints });
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  const problem = components.schemas.Problem as { readonly properties: Record<string, unknown> };
  return {
    paths: paths as Record<string, Record<string, Pick<Operation, 'responses'>>>,
    isProblem: ajv.compile(problem),
    members: new Set(Object.keys(problem.properties)),
  };
}

/**
 * Checks an error response of an endpoint against the OpenAPI document.
 * @throws Error for a code that the endpoint does not list, a member that the document does not know, or a wrong value
 */
export function checkDocumented(
  method: string,
  target: string,
  { status, json }: { readonly status: number; readonly json?: unknown },
): void {
  const endpoint = status < 400 ? undefined : endpointOf(method, target);
  if (!endpoint) return;
  const { paths, isProblem, members } = (documented ??= readDocument());
  const problem = json as Record<string, unknown>;
  const { responses } = paths[endpoint.path.replace(/:(\w+)/g, '{$1}')]?.[endpoint.method] ?? {
    responses: {},
  };
  const faults = [
    ...(isProblem(problem) ? [] : (isProblem.errors ?? []).map(one => `${one.instancePath} ${one.message}`)),
    ...Object.keys(problem).flatMap(name => (members.has(name) ? [] : [`${name} is not documented`])),
    ...(responses[status]?.description.includes(`\`${String(problem['code'])}\``)
      ? []
      : [`${String(problem['code'])} is not documented`]),
  ];
  if (faults.length > 0)
    throw new Error(`/openapi.json, ${endpoint.operationId}: ${faults.join('; ')}\n${JSON.stringify(json)}`);
}

function endpointOf(method: string, target: string): Endpoint | undefined {
  const [path = ''] = target.split('?');
  try {
    return find(method, path).endpoint;
  } catch {
    return undefined;
  }
}
