import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { closeNow } from './close-now.ts';

/** An https server on loopback that publishes what clients say of themselves. This process trusts it. */
export interface ClientDocuments extends AsyncDisposable {
  /** Without a trailing slash. */
  readonly origin: string;
  /** The requests so far: their paths. */
  readonly asked: readonly string[];
  /** Publishes a document, with its own address as `client_id`, which is returned. */
  publish(name: string, metadata: object): string;
}

export async function startClientDocuments(): Promise<ClientDocuments> {
  const { key, cert } = certificate();
  setDefaultCACertificates([...getCACertificates('default'), cert]);
  const documents = new Map<string, string>();
  const asked: string[] = [];
  const server = createServer({ key, cert }, (request, response) => {
    asked.push(request.url ?? '');
    const text = documents.get(request.url ?? '');
    response.writeHead(text === undefined ? 404 : 200, { 'content-type': 'application/json' });
    response.end(text);
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const origin = `https://localhost:${(server.address() as AddressInfo).port}`;
  return {
    origin,
    asked,
    publish(name, metadata) {
      const client_id = `${origin}/${name}`;
      documents.set(`/${name}`, JSON.stringify({ client_id, ...metadata }));
      return client_id;
    },
    [Symbol.asyncDispose]: () => closeNow(server),
  };
}

/** Makes a certificate for localhost that signs itself. */
function certificate(): { key: string; cert: string } {
  const folder = mkdtempSync(path.join(tmpdir(), 'sb-cert-'));
  try {
    const [key, cert] = ['key.pem', 'cert.pem'].map(name => path.join(folder, name)) as [string, string];
    const how = [
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
      '-nodes',
      '-days',
      '1',
    ];
    const whose = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
    execFileSync('openssl', ['req', ...how, ...whose, '-keyout', key, '-out', cert], { stdio: 'ignore' });
    return { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
  } finally {
    rmSync(folder, { recursive: true });
  }
}
