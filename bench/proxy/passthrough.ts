/**
 * The baseline: bare node:http to an undici pool, bytes forwarded, nothing parsed, checked, counted or logged.
 * Takes the upstream's origin as its argument; prints its own.
 */
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Pool } from 'undici';

const HOP_BY_HOP = new Set(['host', 'connection', 'keep-alive', 'transfer-encoding', 'date']);
const onward = (headers: IncomingHttpHeaders) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !HOP_BY_HOP.has(name)));

const pool = new Pool(process.argv[2] ?? '', { connections: 64, pipelining: 1 });
const server = createServer((request, response) => {
  const { method = 'GET', url: path = '/', headers } = request;
  pool.dispatch(
    { path, method, headers: onward(headers), body: method === 'GET' ? null : request },
    {
      onRequestStart() {},
      onResponseStart(_controller, status, received) {
        response.writeHead(status, onward(received));
      },
      onResponseData(_controller, chunk) {
        response.write(chunk);
      },
      onResponseEnd() {
        response.end();
      },
      onResponseError() {
        if (!response.headersSent) response.writeHead(502);
        response.end();
      },
    },
  );
});
server.listen(0, '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
// Ends with its parent.
process.stdin.resume().once('end', () => {
  server.close();
  server.closeAllConnections();
  void pool.destroy();
});
