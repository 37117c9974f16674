import { parseArgs } from 'node:util';

/** What a bench is told as `--name 5`, each number with its default, and `--json`. */
export function readSizes<Name extends string>(
  defaults: Readonly<Record<Name, number>>,
): { readonly sizes: Readonly<Record<Name, number>>; readonly json: boolean } {
  const names = Object.keys(defaults) as Name[];
  const { values } = parseArgs({
    options: {
      ...Object.fromEntries(names.map(name => [name, { type: 'string' as const }])),
      json: { type: 'boolean' as const },
    },
  });
  const given = values as Readonly<Partial<Record<Name, string>>>;
  const sizes = Object.fromEntries(names.map(name => [name, Number(given[name] ?? defaults[name])]));
  return { sizes: sizes as Record<Name, number>, json: values.json === true };
}

/** A fact a line, numbers with at most four digits behind the point. */
export function printFacts(facts: object): void {
  const width = Math.max(...Object.keys(facts).map(name => name.length)) + 2;
  for (const [name, value] of Object.entries(facts))
    console.log(name.padEnd(width), typeof value === 'number' ? Number(value.toFixed(4)) : value);
}
