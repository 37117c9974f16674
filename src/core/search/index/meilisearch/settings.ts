import { createHash } from 'node:crypto';
import type { Settings } from 'meilisearch';
import type { Embedder } from '../../embed/embedder.ts';

/** Of the settings below and of what a document holds: a new number makes a new index. */
const FORMAT = 1;

/** The name of the engine's embedder that stands for ours. */
export const EMBEDDER = 'switchboard';

/** What every index of this program is called, and what a key has to be allowed. */
const INDEX_PREFIX = 'switchboard-';

/** Longer work is cut off by the engine, which then answers with what it has. */
const SEARCH_CUTOFF_MS = 500;

/** The index of an embedder: vectors of two are never in one. */
export const indexUidOf = ({ id, dimensions }: Pick<Embedder, 'id' | 'dimensions'>): string =>
  `${INDEX_PREFIX}${createHash('sha256')
    .update(JSON.stringify([id, dimensions]))
    .digest('hex')
    .slice(0, 16)}-v${FORMAT}`;

/**
 * Words come as our own terms: split, folded, stemmed, without stop words. So the engine is to match them as they are: a typo
 * or a prefix would only bring servers for which there is no evidence (and make `s3` of `s4`); whoever mistypes is
 * understood by meaning. Where terms stand says nothing, so no distances between them are computed.
 */
export const settingsFor = (dimensions: number): Settings => ({
  searchableAttributes: ['names', 'words'],
  filterableAttributes: ['server'],
  sortableAttributes: [],
  displayedAttributes: ['id', 'server', 'hash'],
  rankingRules: ['words', 'attribute'],
  stopWords: [],
  typoTolerance: { enabled: false },
  prefixSearch: 'disabled',
  proximityPrecision: 'byAttribute',
  facetSearch: false,
  searchCutoffMs: SEARCH_CUTOFF_MS,
  embedders: { [EMBEDDER]: { source: 'userProvided', dimensions } },
});
