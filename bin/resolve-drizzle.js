import { registerHooks } from 'node:module';

/*
 * Node 24 parses the `exports` in a package's package.json anew for each file of the package, and for each import of it.
 * drizzle-orm's are 170 KB of JSON, and it has over 100 files: half the processor time of loading this program went into that.
 */

const PACKAGE = 'drizzle-orm';
const FOLDER = `/node_modules/${PACKAGE}/`;

/** @type {Map<string, import('node:module').ResolveFnOutput>} */
const entries = new Map();

registerHooks({
  resolve(specifier, context, nextResolve) {
    if (!context.conditions.includes('import')) return nextResolve(specifier, context);
    // One of its files imports another.
    if (specifier.startsWith('.') && context.parentURL?.includes(FOLDER))
      return { url: new URL(specifier, context.parentURL).href, format: 'module', shortCircuit: true };
    if (specifier !== PACKAGE && !specifier.startsWith(`${PACKAGE}/`)) return nextResolve(specifier, context);
    const entry = entries.get(specifier) ?? nextResolve(specifier, context);
    entries.set(specifier, entry);
    return { ...entry, shortCircuit: true };
  },
});
