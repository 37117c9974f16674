import { createHash } from 'node:crypto';
import path from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { Request, Response } from 'express';

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Returns whether a file of this name can be served. */
export const isServable = (name: string): boolean => TYPES[path.extname(name)] !== undefined;

type Encoding = 'br' | 'gzip' | 'identity';

/** The best first: browsers name all that they know, in no order of preference. */
const ENCODINGS: readonly Encoding[] = ['br', 'gzip', 'identity'];

/** A file as it is served. */
interface StaticFile {
  readonly type: string;
  readonly etag: string;
  readonly bodies: Readonly<Record<Encoding, Buffer>>;
}

type Named = readonly [name: string, bytes: Buffer];

/** Files that browsers load, compressed in memory. The first request reads all of them, so that they cost nothing where nobody asks. */
export class StaticFiles {
  readonly #read: () => Promise<readonly Named[]>;
  #files: Promise<ReadonlyMap<string, StaticFile>> | undefined;

  /** @param read returns the files with their names; called again after a failure */
  constructor(read: () => Promise<readonly Named[]>) {
    this.#read = read;
  }

  /** Returns all files by their name. */
  all(): Promise<ReadonlyMap<string, StaticFile>> {
    this.#files ??= this.#compressed().catch((error: unknown) => {
      this.#files = undefined;
      throw error;
    });
    return this.#files;
  }

  /** Responds with a file and more headers, or with 304 if the client has it. Returns false if there is none of this name. */
  async send(
    request: Request,
    response: Response,
    name: string,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<boolean> {
    const file = (await this.all()).get(name);
    if (!file) return false;
    const encoding = ENCODINGS.find(one => request.acceptsEncodings(one) === one) ?? 'identity';
    const etag = `"${file.etag}-${encoding}"`;
    response.vary('Accept-Encoding').set({ ...headers, 'Cache-Control': 'no-cache', ETag: etag });
    // Compares If-None-Match with the ETag just set.
    if (request.fresh) {
      response.status(304).end();
      return true;
    }
    if (encoding !== 'identity') response.set('Content-Encoding', encoding);
    response.set('Content-Type', file.type).send(file.bodies[encoding]);
    return true;
  }

  async #compressed(): Promise<ReadonlyMap<string, StaticFile>> {
    return new Map(await Promise.all((await this.#read()).map(toServed)));
  }
}

/** A tenth larger than with the best quality, in a hundredth of the time. */
const BROTLI = { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } };

async function toServed([name, bytes]: Named): Promise<[string, StaticFile]> {
  const [br, gzipped] = await Promise.all([promisify(brotliCompress)(bytes, BROTLI), promisify(gzip)(bytes)]);
  const etag = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  const type = TYPES[path.extname(name)] ?? 'application/octet-stream';
  return [name, { type, etag, bodies: { br, gzip: gzipped, identity: bytes } }];
}
