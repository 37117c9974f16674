/**
 * What learning from use does to rankings, and what it cannot be made to do: npm run bench:use -- [--calls 1000000]
 * [--queries 634] [--pairs 30] [--weeks 6] [--searches 100] [--json]
 *
 * In this process: the shipped catalogue, the real index, search and counts, and a clock that is set. Three parts: a flood of
 * one tenant's calls (`use/flood.ts`); twins of which one works, and newcomers among established servers (`use/users.ts`). Random
 * choices are seeded: the figures repeat exactly.
 */
import { printFacts, readSizes } from './command-line.ts';
import { flood } from './use/flood.ts';
import { newcomers, twins } from './use/users.ts';

const percent = (share: number) => `${(share * 100).toFixed(1)} %`;
const places = ({ working, failing }: { working: number; failing: number }) =>
  `working ${working.toFixed(2)}, failing ${failing.toFixed(2)}`;

const { sizes, json } = readSizes({ calls: 1_000_000, queries: 634, pairs: 30, weeks: 6, searches: 100 });
const result = { flood: await flood(sizes), twins: await twins(sizes), newcomers: await newcomers(sizes) };
if (json) console.log(JSON.stringify(result));
else {
  console.log('A flood by one tenant');
  printFacts(result.flood);
  const { before, fixed, learning, pairs, searches } = result.twins;
  console.log(`\nTwins of which one works: ${pairs} pairs, ${searches} searches`);
  console.log(`mean place without use    ${places(before)}`);
  console.log(`mean place after ${sizes.weeks} weeks   ${places(learning.after)}`);
  for (const [name, { byWeek }] of Object.entries({ 'without use': fixed, 'as built': learning }))
    console.log(`first calls that succeed, by week, ${name}: ${byWeek.map(percent).join(', ')}`);
  const { pairs: count, ...arms } = result.newcomers;
  console.log(`\nNewcomers that fit as well as an established server: ${count} pairs`);
  for (const [name, weeks] of Object.entries(arms)) {
    console.log(name);
    for (const { week, before_the_old, first, top_3, called } of weeks)
      console.log(
        `  week ${week}: before the old ${percent(before_the_old)}, first ${percent(first)}, in the first three ${percent(top_3)}, called ${percent(called)}`,
      );
  }
}
