import { setTimeout as delay } from 'node:timers/promises';
import { load, untilQuiet, type Load, type Turn } from './load.ts';
import { percentile } from './measures.ts';

const WARM_REQUESTS = 10_000;
const WARM_SECONDS = 8;
const TRIES = 6;
const QUIET_WITHIN_SECONDS = 10;

export interface Rounds {
  readonly rounds: number;
  readonly seconds: number;
  /** Between two rounds, where other work needs the machine as well. */
  readonly pauseSeconds: number;
  /** The cores that other work may take during a turn; a turn with more is taken again, a few times. */
  readonly othersCores: number;
  /** For how long turns are taken again, for each number of connections. */
  readonly patienceSeconds: number;
}

export interface Result {
  readonly way: Load;
  /** One a round, fewer after a failure. */
  readonly turns: readonly Turn[];
  readonly failure?: string;
}

const pause = ({ pauseSeconds }: Pick<Rounds, 'pauseSeconds'>) => delay(pauseSeconds * 1000);

/** Loads each way before it is measured, until it has answered ten thousand requests, or for eight seconds. */
export async function warmUp(ways: readonly Load[], rounds: Pick<Rounds, 'pauseSeconds'>): Promise<void> {
  for (const way of ways) {
    let requests = 0;
    for (let second = 0; second < WARM_SECONDS && requests < WARM_REQUESTS; second++)
      // A way that fails is told by its first turn.
      requests += await load(way, 16, 1).then(
        turn => turn.perSecond,
        () => WARM_REQUESTS,
      );
    await pause(rounds);
  }
}

/** Takes one turn, the one of several tries that other work disturbed least. */
async function takeTurn(
  way: Load,
  connections: number,
  { seconds, othersCores }: Rounds,
  patientUntil: number,
): Promise<Turn> {
  const isPatient = () => Number.isFinite(othersCores) && performance.now() < patientUntil;
  const turn = async () => {
    if (isPatient()) await untilQuiet(othersCores, QUIET_WITHIN_SECONDS);
    return load(way, connections, seconds);
  };
  // A busy machine can make a slow peer fail once.
  let best = await turn().catch(turn);
  for (let tried = 1; tried < TRIES && best.othersCores > othersCores && isPatient(); tried++) {
    const next = await turn().catch(() => best);
    if (next.othersCores < best.othersCores) best = next;
  }
  return best;
}

/** Gives each way its turn in every round, in alternating order. A way that fails twice in a row has no more turns. */
export async function takeTurns(
  ways: readonly Load[],
  connections: number,
  rounds: Rounds,
): Promise<readonly Result[]> {
  const results = ways.map((way): { way: Load; turns: Turn[]; failure?: string } => ({ way, turns: [] }));
  const patientUntil = performance.now() + rounds.patienceSeconds * 1000;
  for (let round = 0; round < rounds.rounds; round++) {
    for (const result of round % 2 === 0 ? results : results.toReversed()) {
      if (result.failure !== undefined) continue;
      try {
        result.turns.push(await takeTurn(result.way, connections, rounds, patientUntil));
      } catch (error) {
        result.failure = (error as Error).message;
      }
    }
    await pause(rounds);
  }
  return results;
}

/** Returns the middle value. */
export const median = (list: readonly number[]) => percentile(list, 0.5);

/** Returns the median, with the lowest and the highest. */
export const spread = (list: readonly number[]) => {
  const digits = median(list) < 0.1 ? 3 : 2;
  const [middle, lowest, highest] = [median(list), Math.min(...list), Math.max(...list)].map(value =>
    value.toFixed(digits),
  );
  return `${middle} [${lowest}, ${highest}]`;
};

const COLUMNS = [
  'requests/s',
  'p50 ms',
  'p99 ms',
  'CPU us',
  'RSS MiB',
  'others',
  'rate',
  'p50 ratio',
  'CPU ratio',
];
const NAME_WIDTH = 28;
const row = (name: string, cells: readonly string[]) =>
  name.padEnd(NAME_WIDTH) + cells.map((text, at) => text.padStart(at < 6 ? 11 : 24)).join('');

/**
 * Prints what each way did: medians, and its ratios to the baseline within each round as median [lowest, highest].
 * @param json a line of JSON a way, with every turn
 */
export function printResults(
  cell: Readonly<Record<string, string | number>>,
  results: readonly Result[],
  baseline: Load,
  json: boolean,
): void {
  const base = results.find(({ way }) => way === baseline)?.turns ?? [];
  if (!json) {
    const title = Object.entries(cell).map(([name, value]) => `${name} ${value}`);
    console.log(`\n${title.join(', ')}\n${row('', COLUMNS)}`);
  }
  for (const { way, turns, failure } of results) {
    const ratio = (of: keyof Turn) => turns.map((turn, at) => turn[of] / (base[at]?.[of] ?? Number.NaN));
    const of = (field: keyof Turn) => median(turns.map(turn => turn[field]));
    const ratios = { rate: ratio('perSecond'), p50: ratio('p50Ms'), cpu: ratio('cpuUs') };
    if (json) {
      console.log(JSON.stringify({ ...cell, name: way.name, turns, ratios, failure }));
      continue;
    }
    if (turns.length > 0) {
      const figures = [of('perSecond').toFixed(0), of('p50Ms').toFixed(2), of('p99Ms').toFixed(2)];
      figures.push(of('cpuUs').toFixed(0), of('rssMib').toFixed(0), of('othersCores').toFixed(2));
      console.log(row(way.name, [...figures, ...Object.values(ratios).map(spread)]));
    }
    if (failure !== undefined)
      console.log(`${way.name.padEnd(NAME_WIDTH)}  after ${turns.length} turns: ${failure}`);
  }
}
