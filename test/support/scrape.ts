export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** What `/metrics` of a Switchboard shows. */
export async function scrape(url: string): Promise<Sample[]> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return text
    .split('\n')
    .filter(line => line !== '' && !line.startsWith('#'))
    .map(line => {
      const [, name = '', labels = '', value = ''] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
      const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, of]) => [key, of]);
      return { name, labels: Object.fromEntries(pairs), value: Number(value) };
    });
}

/** The sum of all samples of a name that have these labels. */
export const sumOf = (
  samples: readonly Sample[],
  name: string,
  labels: Record<string, string> = {},
): number =>
  samples
    .filter(one => one.name === name && Object.entries(labels).every(([key, of]) => one.labels[key] === of))
    .reduce((sum, { value }) => sum + value, 0);
