import { createHash } from 'node:crypto';
import type { QuantizedVector } from '../quantize.ts';
import { EMBEDDER } from './settings.ts';

/** The engine takes 256 at most; what is beyond goes into a further document of the same server. */
const VECTORS_OF_A_DOCUMENT = 250;

/** A document as the engine keeps it. Several of one server differ in their vectors only. */
export interface EngineDocument {
  readonly id: string;
  readonly server: string;
  /** Of all that the server's documents hold: where it differs, they are to be written again. */
  readonly hash: string;
  readonly names: string;
  readonly words: string;
  readonly _vectors: Readonly<Record<typeof EMBEDDER, { embeddings: number[][]; regenerate: false }>>;
}

/** What the engine is given of a server. */
export interface EngineContent {
  readonly serverId: string;
  /** Terms of its name and its tools' names. */
  readonly names: readonly string[];
  /** All its terms. */
  readonly words: readonly string[];
  /** The text of each vector. */
  readonly prose: readonly string[];
}

/** Which documents stand for a server, and what for. */
export interface EngineDocuments {
  readonly hash: string;
  readonly ids: readonly string[];
  /** Whether a search by meaning can find it. */
  readonly hasVectors: boolean;
}

/** A hash of texts or numbers in their order. */
export const hashOf = (values: readonly unknown[]): string =>
  createHash('sha256').update(JSON.stringify(values)).digest('base64url').slice(0, 22);

/** @param vectors as for `writeDocuments`. A vector that is missing for now makes another hash than the vector itself. */
export function documentsFor(content: EngineContent, vectors: readonly QuantizedVector[]): EngineDocuments {
  const { serverId, names, words, prose } = content;
  const missing = [...vectors.keys()].filter(at => vectors[at]?.scale === 0);
  const count = Math.max(1, Math.ceil(prose.length / VECTORS_OF_A_DOCUMENT));
  return {
    hash: hashOf([names, words, prose, missing]),
    hasVectors: missing.length < vectors.length,
    ids: Array.from({ length: count }, (_, at) => documentId(serverId, at)),
  };
}

/**
 * The documents of a server. Its vectors go out as whole numbers, without their scale: the engine compares directions.
 * @param vectors one for each text of `prose`; those of zeros, which point nowhere, are left out.
 */
export function writeDocuments(
  content: EngineContent,
  vectors: readonly QuantizedVector[],
): EngineDocument[] {
  const { hash, ids } = documentsFor(content, vectors);
  return ids.map((id, at) => {
    const own = vectors
      .slice(at * VECTORS_OF_A_DOCUMENT, (at + 1) * VECTORS_OF_A_DOCUMENT)
      .filter(({ scale }) => scale > 0);
    return {
      id,
      server: content.serverId,
      hash,
      names: unique(content.names),
      words: unique(content.words),
      _vectors: {
        [EMBEDDER]: { embeddings: own.map(({ values }) => Array.from(values)), regenerate: false },
      },
    };
  });
}

const unique = (terms: readonly string[]): string => [...new Set(terms)].join(' ');

/** Engine ids have no dot, and server ids no capitals. */
const documentId = (serverId: string, at: number): string => `${serverId.replaceAll('.', 'D')}P${at}`;
