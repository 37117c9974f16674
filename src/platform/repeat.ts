/** Work that is done again and again: at once, and so long after it began, or when it has ended if that is later. */
export interface Every {
  start(): void;
  /** Begins it no more; what is under way goes on. */
  stop(): void;
}

/** @param work never rejects */
export function every(ms: number, work: () => Promise<void>): Every {
  let timer: NodeJS.Timeout | undefined;
  let isStopped = false;
  const next = () => {
    const working = work();
    timer = setTimeout(() => {
      void working.then(() => {
        if (!isStopped) next();
      });
    }, ms).unref();
  };
  return {
    start: next,
    stop() {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}
