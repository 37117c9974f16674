/** Every way in which a request to the embedding API ends without usable vectors. A label of the metrics. */
export type FailureKind =
  | 'timeout'
  | 'unreachable'
  | 'rate_limited'
  | 'quota'
  | 'unauthorized'
  | 'not_found'
  | 'input_refused'
  | 'server_error'
  | 'unexpected_status'
  | 'invalid_answer'
  | 'other_model'
  | 'held_back'
  | 'closed';

/** How each is told in `/readyz`, which is open to all: no address, no text of the API's. */
const IN_WORDS: Readonly<Record<FailureKind, string>> = {
  timeout: 'does not answer in time',
  unreachable: 'cannot be reached',
  rate_limited: 'limits the rate of requests',
  quota: 'says that the quota is used up',
  unauthorized: 'refuses the key (check OPENAI_API_KEY)',
  not_found: 'has no such model or address (check EMBEDDING_MODEL and OPENAI_BASE_URL)',
  input_refused: 'refuses the texts',
  server_error: 'fails',
  unexpected_status: 'answers with an unexpected HTTP status',
  invalid_answer: 'answers something that is no usable list of vectors',
  other_model: 'gives vectors of another model than before',
  held_back: 'is not asked for a moment, because it failed',
  closed: 'is no longer asked: Switchboard is stopping',
};

/** Asked again only where the next answer may be another one. */
const RETRYABLE: ReadonlySet<FailureKind> = new Set([
  'timeout',
  'unreachable',
  'rate_limited',
  'server_error',
  'invalid_answer',
]);

interface FailureDetails {
  /** What the API said, without any secret. */
  readonly detail?: string | undefined;
  readonly status?: number | undefined;
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/** A request to the embedding API has failed; neither the message nor the cause holds the API key. */
export class EmbeddingFailure extends Error {
  override readonly name = 'EmbeddingFailure';
  readonly kind: FailureKind;
  /** What the API does, in a few words that may be shown to anybody. */
  readonly inWords: string;
  readonly retryable: boolean;
  readonly status: number | undefined;
  /** How long the API asks to be left alone. */
  readonly retryAfterMs: number | undefined;

  constructor(kind: FailureKind, { detail, status, retryAfterMs, cause }: FailureDetails = {}) {
    const inWords = `the embedding API ${IN_WORDS[kind]}`;
    super(inWords + (detail === undefined || detail === '' ? '' : `: ${detail}`), { cause });
    this.kind = kind;
    this.inWords = inWords;
    this.retryable = RETRYABLE.has(kind);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}
