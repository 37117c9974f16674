import { Client } from 'undici';

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
      return { status: response.statusCode, json: await response.body.json() };
    },
    close: () => client.close(),
  };
}
