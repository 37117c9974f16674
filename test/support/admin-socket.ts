import { Client } from 'undici';
import { checkDocumented } from './documented.ts';

export interface AdminSocket {
  request(
    method: 'GET' | 'POST' | 'PUT',
    path: string,
    body?: unknown,
  ): Promise<{ status: number; json: any }>;
  close(): Promise<void>;
}

/** Speaks to the control socket as the command line does: an object goes as JSON, a string as plain text. */
export function connectAdminSocket(socketPath: string): AdminSocket {
  const client = new Client('http://localhost', { connect: { socketPath } });
  return {
    async request(method, path, body) {
      const text = typeof body === 'string';
      const response = await client.request({
        method,
        path,
        ...(body === undefined
          ? {}
          : {
              body: text ? body : JSON.stringify(body),
              headers: { 'content-type': text ? 'text/plain' : 'application/json' },
            }),
      });
      const json = await response.body.json();
      checkDocumented(method, `/v1/admin${path}`, { status: response.statusCode, json });
      return { status: response.statusCode, json };
    },
    close: () => client.close(),
  };
}
