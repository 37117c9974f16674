import path from 'node:path';
import { serve, type Program } from '../../test/support/program.ts';

export const NAMES = ['a', 'b', 'c'] as const;
export type Name = (typeof NAMES)[number];

/** One process's life, from its start to its end. */
export interface Life {
  readonly name: Name;
  readonly number: number;
  readonly program: Program;
  readonly logFile: string;
}

/** A place behind the balancer: the same settings and data folder at each start, another process and port. */
export class Replica {
  readonly name: Name;
  readonly #env: Readonly<Record<string, string>>;
  readonly #folder: string;
  readonly #lives: Life[] = [];
  /** Undefined while there is none. */
  life: Life | undefined;

  constructor(name: Name, env: Readonly<Record<string, string>>, folder: string) {
    this.name = name;
    this.#env = env;
    this.#folder = folder;
  }

  /** All there were, to read their logs. */
  get lives(): readonly Life[] {
    return this.#lives;
  }

  /** Until it is ready. */
  async start(): Promise<Life> {
    const number = this.#lives.length + 1;
    const logFile = path.join(this.#folder, `${this.name}-${number}.log`);
    const data = path.join(this.#folder, this.name);
    const program = await serve({ ...this.#env, SWITCHBOARD_DATA_DIR: data }, logFile);
    const life = { name: this.name, number, program, logFile };
    this.#lives.push(life);
    this.life = life;
    await program.ready();
    return life;
  }

  /** @returns the exit code; null after SIGKILL. */
  async stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<number | null> {
    const code = (await this.life?.program.stop(signal)) ?? null;
    this.life = undefined;
    return code;
  }
}
