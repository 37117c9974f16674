import type { Balancer, Target } from './balancer.ts';
import type { TokenSet } from './identity.ts';
import { eventually, type Reply } from './processes.ts';

const KINDS = ['search', 'call', 'refresh'] as const;
type Kind = (typeof KINDS)[number];
/** What each process has to answer of each kind in `enough`. */
const ENOUGH = 20;

interface Counts {
  readonly answered: Readonly<Record<Kind, number>>;
  /** Sent again, for a connection that was refused or lost, or a 503. */
  readonly again: number;
}

export interface Load extends AsyncDisposable {
  readonly failures: readonly string[];
  counts(): Counts;
  since(before: Counts): Counts;
  /** Resolves when every process has answered enough more of each kind. */
  enough(): Promise<void>;
  /** Ends it. Resolves with the calls answered, and the tokens that the user was given last. */
  stop(): Promise<{ readonly calls: number; readonly user: TokenSet }>;
}

/** Searches, calls for a user, and refreshes of the user's tokens, one of each at a time, until it is stopped. */
export function startLoad(user: TokenSet, balancer: Balancer, targets: readonly Target[]): Load {
  let tokens = user;
  const answered = new Map(targets.map(({ name }) => [name, { search: 0, call: 0, refresh: 0 }]));
  const failures: string[] = [];
  const load = { isOn: true, sent: 0 };

  const isRight: Record<Kind, (reply: Reply) => boolean> = {
    search: ({ json }) => json?.servers?.[0]?.id === 'mail',
    call: ({ json }) => json?.result?.content?.[0]?.text === 'Echo: hi',
    refresh: ({ status }) => status === 200,
  };
  const acts: Record<Kind, (process: Target['process'], number: number) => Promise<Reply>> = {
    search: (process, number) => process.post('/v1/search', { query: `send mail number ${number}` }),
    call: process => process.callTool(tokens),
    refresh: (process, number) =>
      process.refresh(tokens.refresh_token, { 'idempotency-key': `refresh-${number}` }),
  };
  const once = async (kind: Kind) => {
    const number = ++load.sent;
    const { reply, name } = await balancer.send(process => acts[kind](process, number));
    if (!isRight[kind](reply)) throw new Error(`${name} answered ${reply.status}: ${reply.text}`);
    if (kind === 'refresh') tokens = reply.json;
    const own = answered.get(name);
    if (own) own[kind]++;
  };
  const running = KINDS.map(async kind => {
    while (load.isOn) await once(kind).catch((error: unknown) => failures.push(`${kind}: ${String(error)}`));
  });

  const sum = (kind: Kind) => [...answered.values()].reduce((total, own) => total + own[kind], 0);
  const counts = (): Counts => ({
    answered: { search: sum('search'), call: sum('call'), refresh: sum('refresh') },
    again: Object.values(balancer.retried).reduce((total, times) => total + times, 0),
  });
  const end = async () => {
    load.isOn = false;
    await Promise.all(running);
  };
  return {
    failures,
    counts,
    since({ answered: { search, call, refresh }, again }) {
      const now = counts();
      return {
        answered: {
          search: now.answered.search - search,
          call: now.answered.call - call,
          refresh: now.answered.refresh - refresh,
        },
        again: now.again - again,
      };
    },
    async enough() {
      const before = structuredClone(answered);
      const more = (name: string, kind: Kind) =>
        (answered.get(name)?.[kind] ?? 0) - (before.get(name)?.[kind] ?? 0);
      const isEnough = ({ name }: Target) => KINDS.every(kind => more(name, kind) >= ENOUGH);
      await eventually('enough is answered', () => failures.length > 0 || targets.every(isEnough));
    },
    async stop() {
      await end();
      return { calls: sum('call'), user: tokens };
    },
    [Symbol.asyncDispose]: end,
  };
}
